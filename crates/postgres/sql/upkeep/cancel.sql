select count(*) filter (where pg_catalog.pg_cancel_backend(a.pid)) as cancelled
from pg_catalog.pg_stat_activity a
where a.datname = pg_catalog.current_database()
  and a.state = 'active'
  and a.pid <> pg_catalog.pg_backend_pid()
  and a.query = $1::text
