select k.place, l.aggregateversion
from unnest($2::text[], $3::text[], $4::text[], $5::integer[])
    with ordinality as k (source, aggregatetype, aggregateid, generation, place)
cross join lateral (
    select l.aggregateversion from onceward.ledger l
    where l.subscription = $1::text
      and pg_catalog.hashtextextended(l.aggregateid collate "C", 0)
          = pg_catalog.hashtextextended(k.aggregateid collate "C", 0)
      and l.aggregateid = k.aggregateid
      and l.aggregatetype = k.aggregatetype
      and l.source = k.source
      and l.generation = k.generation
      and l.aggregateversion is not null
    order by l.aggregateversion desc
    limit 1) l
