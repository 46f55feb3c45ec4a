-- How many were given up of late, up to a bound, by the partial indexes on them.
select e.ending,
    (select count(*) from (
        (select 1 from onceward.ledger l
         where l.subscription = $1::text and l.ending = e.ending
           and l.ending in ('expired', 'merged', 'shed')
           and l.finished_at > t.now - interval '1 hour'
         limit $3::bigint)
        union all
        (select 1 from onceward.operation_ledger l
         where l.subscription = $1::text and l.ending = e.ending
           and l.ending in ('expired', 'merged', 'shed')
           and l.finished_at > t.now - interval '1 hour'
         limit $3::bigint)
        limit $3::bigint) n) as last_hour,
    (select count(*) from (
        (select 1 from onceward.ledger l
         where l.subscription = $1::text and l.ending = e.ending
           and l.ending in ('expired', 'merged', 'shed')
           and l.finished_at > t.now - interval '1 day'
         limit $3::bigint)
        union all
        (select 1 from onceward.operation_ledger l
         where l.subscription = $1::text and l.ending = e.ending
           and l.ending in ('expired', 'merged', 'shed')
           and l.finished_at > t.now - interval '1 day'
         limit $3::bigint)
        limit $3::bigint) n) as last_day
from unnest($2::text[]) as e (ending)
cross join (select onceward.moment($4::bigint) as now) t
