-- The same message appended twice within a day is one: its rows differ in their time. The bounds on
-- the time let the planner leave all other days alone.
select k.place, l.digest, l.ending, l.result::text as result, l.aggregateversion
from unnest($2::text[], $3::text[], $4::text[], $5::integer[], $6::bigint[])
    with ordinality as k (source, type, identity, generation, recordedtime, place)
cross join lateral (
    select * from onceward.ledger l
    where l.subscription = $1::text
      and l.source = k.source
      and l.type = k.type
      and l.identity = k.identity
      and l.generation = k.generation
      and l.recordedtime between
          'epoch'::timestamptz + k.recordedtime * interval '1 microsecond' - interval '1 day'
          and 'epoch'::timestamptz + k.recordedtime * interval '1 microsecond' + interval '1 day'
      and l.recordedtime between 'epoch'::timestamptz + $7::bigint * interval '1 microsecond' - interval '1 day'
                             and 'epoch'::timestamptz + $8::bigint * interval '1 microsecond' + interval '1 day'
    order by l.recordedtime
    limit 1) l
