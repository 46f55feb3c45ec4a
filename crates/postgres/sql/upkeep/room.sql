select s.last_value,
    (select q.seqcache from pg_catalog.pg_sequence q
     where q.seqrelid = 'onceward.outbox_seq'::regclass) as cache,
    (select max(r.next) from onceward.ranges r) as made_until,
    (select count(*) from onceward.ranges r where r.first > s.last_value) as ahead,
    u.rate_seq, u.rate_max,
    extract(epoch from clock_timestamp() - u.rate_at)::double precision as rate_seconds
from onceward.outbox_seq s, onceward.upkeep u
