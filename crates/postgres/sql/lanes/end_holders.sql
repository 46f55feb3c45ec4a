-- Ends the sessions that still hold a dead member's fence.
select count(*) filter (where pg_catalog.pg_terminate_backend(k.pid)) as ended
from pg_catalog.pg_locks k
where k.locktype = 'advisory'
  and k.database = (select d.oid from pg_catalog.pg_database d
                    where d.datname = pg_catalog.current_database())
  and ((k.classid::bigint << 32) | k.objid::bigint) = $1::bigint
  and k.objsubid = 1
  and k.granted
  and k.pid <> pg_catalog.pg_backend_pid()
