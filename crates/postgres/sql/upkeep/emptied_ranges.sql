-- Emptied ranges where nobody can write any more. With a cache above one a session takes numbers in
-- advance and may use them whenever it likes: then a range stays until all sessions are over that
-- were there when it was emptied. One whose start may not be looked at counts as such. A change of
-- the cache makes every session give up the numbers that it holds.
select r.leaf
from onceward.ranges r
where r.emptied_at is not null
  and (
    1 = (select q.seqcache from pg_catalog.pg_sequence q
         where q.seqrelid = 'onceward.outbox_seq'::regclass)
    or not exists (
        select 1 from pg_catalog.pg_stat_activity a
        where a.datname = pg_catalog.current_database()
          and a.pid <> pg_catalog.pg_backend_pid()
          and coalesce(a.backend_start <= r.emptied_at, true)))
order by r.first
limit $1::bigint
