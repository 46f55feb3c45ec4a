select f.ending, f.result, onceward.micros(f.finished_at) as finished_at
from (
    select l.ending, l.result::text as result, l.finished_at, l.generation
    from onceward.ledger l
    where l.subscription = $1::text and l.source = $2::text and l.type = $3::text
      and l.identity in ($4::text, $5::text)
      and l.recordedtime = 'epoch'::timestamptz + $7::bigint * interval '1 microsecond'
    union all
    select l.ending, l.result::text, l.finished_at, l.generation
    from onceward.operation_ledger l
    where l.subscription = $1::text and l.source = $2::text and l.type = $3::text
      and l.identity = $6::text
) f
order by f.generation desc
limit 1
