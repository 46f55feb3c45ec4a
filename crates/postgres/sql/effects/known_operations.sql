select k.place, l.digest, l.ending, l.result::text as result, l.aggregateversion
from unnest($2::text[], $3::text[], $4::text[], $5::integer[])
    with ordinality as k (source, type, identity, generation, place)
cross join lateral (
    select * from onceward.operation_ledger l
    where l.subscription = $1::text
      and l.source = k.source
      and l.type = k.type
      and l.identity = k.identity
      and l.generation = k.generation
    limit 1) l
