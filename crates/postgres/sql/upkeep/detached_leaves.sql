-- Tables that a round detached, or began to, and did not come to drop.
select c.relname::text as leaf
from pg_catalog.pg_class c
left join pg_catalog.pg_inherits i on i.inhrelid = c.oid
where c.relnamespace = 'onceward'::regnamespace
  and c.relkind = 'r'
  and c.relname ~ '^(ledger|outbox)_(\d+|early)$'
  and (i.inhrelid is null or i.inhdetachpending)
