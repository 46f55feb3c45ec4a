-- Read in a statement of its own before the snapshot is taken: only then is every later
-- transaction's sequence above the floor.
select
    case when q.is_called then q.last_value else q.last_value - 1 end as floor,
    (select s.seqcache from pg_catalog.pg_sequence s
     where s.seqrelid = 'onceward.outbox_seq'::regclass) as cache,
    m.era,
    m.era_floor,
    m.identity = onceward.identity() as is_home,
    onceward.is_standby() as is_standby
from onceward.outbox_seq q, onceward.meta m
