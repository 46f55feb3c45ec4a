-- The bounds on the time let the planner leave all other days alone.
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
      and l.recordedtime = 'epoch'::timestamptz + k.recordedtime * interval '1 microsecond'
      and l.recordedtime between 'epoch'::timestamptz + $7::bigint * interval '1 microsecond'
                             and 'epoch'::timestamptz + $8::bigint * interval '1 microsecond'
    limit 1) l
