-- A snapshot's xmax is one above the last transaction that has ended; transactions above it may have
-- started. How many have, and wait to be told apart from those that have not, is their age.
select s.snapshot::text as snapshot, age(pg_snapshot_xmax(s.snapshot)::xid) as started
from (select pg_current_snapshot() as snapshot) s
