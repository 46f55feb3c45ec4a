-- Numbers come from the tallies, the rest from a few places of indexes for each cause. Cases are
-- numbered as they are first opened.
select g.fingerprint, o.subscription, o.type, o.failure, g.live, g.total,
    onceward.micros(f.first_opened_at) as first_at, onceward.micros(l.last_at) as last_at,
    o.case_id as oldest
from (
    select t.fingerprint, sum(t.live)::bigint as live, sum(t.total)::bigint as total
    from onceward.case_tallies t
    group by t.fingerprint
    having sum(t.total) > 0 and (sum(t.live) > 0 or $2::boolean)) g
cross join lateral (
    select
        least(
            (select min(c.case_id) from onceward.cases c
             where c.fingerprint = g.fingerprint and c.state = 'open'),
            (select min(c.case_id) from onceward.cases c
             where c.fingerprint = g.fingerprint and c.state = 'acknowledged'),
            (select min(c.case_id) from onceward.cases c
             where c.fingerprint = g.fingerprint and c.state = 'corrected')) as live,
        least(
            (select min(c.case_id) from onceward.cases c
             where c.fingerprint = g.fingerprint and c.state = 'replayed'),
            (select min(c.case_id) from onceward.cases c
             where c.fingerprint = g.fingerprint and c.state = 'discarded'),
            (select min(c.case_id) from onceward.cases c
             where c.fingerprint = g.fingerprint and c.state = 'waived')) as ended) n
cross join lateral (
    select max(c.opened_at) as last_at from onceward.cases c
    where c.fingerprint = g.fingerprint) l
join onceward.cases o on o.case_id = coalesce(n.live, n.ended)
join onceward.cases f on f.case_id = least(n.live, n.ended)
where $1::text is null or o.subscription = $1::text
order by g.live desc, oldest
limit $3::bigint
