-- How many were given up of late, up to a bound, by the partial indexes on them: the latest ones of
-- a day, and which of those are of the last hour.
select e.ending,
    least($3::bigint, count(n.finished_at) filter (where n.finished_at > t.now - interval '1 hour'))
        as last_hour,
    least($3::bigint, count(n.finished_at)) as last_day
from unnest($2::text[]) as e (ending)
cross join (select onceward.moment($4::bigint) as now) t
left join lateral (
    (select l.finished_at from onceward.ledger l
     where l.subscription = $1::text and l.ending = e.ending
       and l.ending in ('expired', 'merged', 'shed')
       and l.finished_at > t.now - interval '1 day'
     order by l.finished_at desc
     limit $3::bigint)
    union all
    (select l.finished_at from onceward.operation_ledger l
     where l.subscription = $1::text and l.ending = e.ending
       and l.ending in ('expired', 'merged', 'shed')
       and l.finished_at > t.now - interval '1 day'
     order by l.finished_at desc
     limit $3::bigint)
) n on true
group by e.ending
