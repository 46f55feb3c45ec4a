-- Of subscriptions that are locked: a statement of its own, whose snapshot is taken after the lock.
-- The last pause is prolonged where it is of this kind and reaches into the time in question; else
-- one begins, where none is there. Pauses never overlap, so that ages need only add them up.
with said as (
    select n.subscription, n.because, t.now,
        t.now - n.since_ms * interval '1 millisecond' as since,
        t.now + n.until_ms * interval '1 millisecond' as until_at,
        t.now + $5::bigint * interval '1 millisecond' as holds_to,
        p.pause_id, p.resumed_at, p.because is not null as is_still
    from (select onceward.moment($6::bigint) as now) t
    cross join unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])
        as n (subscription, because, since_ms, until_ms)
    left join lateral (
        select l.pause_id, l.resumed_at, l.because from onceward.pauses l
        where l.subscription = n.subscription
        order by l.pause_id desc
        limit 1) p on true
), prolonged as (
    update onceward.pauses p
    set resumed_at = greatest(p.resumed_at, s.holds_to), because = s.because,
        until_at = s.until_at
    from said s
    where p.pause_id = s.pause_id and s.is_still and s.resumed_at >= s.since
)
insert into onceward.pauses (subscription, paused_at, resumed_at, because, until_at)
select s.subscription, greatest(s.since, s.resumed_at), s.holds_to, s.because, s.until_at
from said s
where s.pause_id is null
   or (s.resumed_at <= s.now and not (s.is_still and s.resumed_at >= s.since))
