-- What was given up in one way, the latest first, by the partial indexes on it.
select d.source, d.type, d.identity, d.generation, d.result,
    onceward.micros(d.finished_at) as finished_at
from (
    (select l.source, l.type, l.identity, l.generation, l.result::text as result, l.finished_at
     from onceward.ledger l
     where l.subscription = $1::text and l.ending = $2::text
       and l.ending in ('expired', 'merged', 'shed')
       and (l.finished_at, l.source collate "C", l.type collate "C", l.identity collate "C",
            l.generation)
           < (coalesce('epoch'::timestamptz + $3::bigint * interval '1 microsecond', 'infinity'),
              $4::text, $5::text, $6::text, $7::integer)
     order by l.finished_at desc, l.source collate "C" desc, l.type collate "C" desc,
         l.identity collate "C" desc, l.generation desc
     limit $8::bigint)
    union all
    (select l.source, l.type, l.identity, l.generation, l.result::text as result, l.finished_at
     from onceward.operation_ledger l
     where l.subscription = $1::text and l.ending = $2::text
       and l.ending in ('expired', 'merged', 'shed')
       and (l.finished_at, l.source collate "C", l.type collate "C", l.identity collate "C",
            l.generation)
           < (coalesce('epoch'::timestamptz + $3::bigint * interval '1 microsecond', 'infinity'),
              $4::text, $5::text, $6::text, $7::integer)
     order by l.finished_at desc, l.source collate "C" desc, l.type collate "C" desc,
         l.identity collate "C" desc, l.generation desc
     limit $8::bigint)
) d
order by d.finished_at desc, d.source collate "C" desc, d.type collate "C" desc,
    d.identity collate "C" desc, d.generation desc
limit $8::bigint
