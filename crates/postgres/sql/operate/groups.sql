select g.fingerprint, c.subscription, c.type, c.failure, g.live, g.total, g.first_at, g.last_at,
    g.oldest
from (
    select n.fingerprint, count(*) filter (where n.is_live) as live, count(*) as total,
        onceward.micros(min(n.first_opened_at)) as first_at,
        onceward.micros(max(n.opened_at)) as last_at,
        coalesce(min(n.case_id) filter (where n.is_live), min(n.case_id)) as oldest
    from (select k.*, k.state in ('open', 'acknowledged', 'corrected') as is_live from onceward.cases k) n
    where $1::text is null or n.subscription = $1::text
    group by n.fingerprint) g
join onceward.cases c on c.case_id = g.oldest
where g.live > 0 or $2::boolean
order by g.live desc, g.oldest
limit $3::bigint
