select s.lanes, s.types, s.terms, s.rate_per_second, s.rate_burst,
    onceward.micros(t.now) as now,
    count(*) filter (where d.kind = 'retry') as retry,
    count(*) filter (where d.kind = 'held') as held,
    count(*) filter (where d.kind = 'running') as running,
    count(*) filter (where d.kind = 'operator') as operator,
    count(*) filter (where d.kind = 'gap') as gap,
    onceward.micros(min(d.first_deferred_at)) as oldest_deferred_at,
    onceward.micros(min(d.due_at) filter (where d.kind = 'retry' and d.due_at <= t.now))
        as due_since,
    (select count(*) from onceward.cases c
     where c.subscription = $1::text and c.state in ('open', 'acknowledged', 'corrected')) as quarantined,
    (select onceward.micros(p.paused_at) from onceward.pauses p
     where p.subscription = $1::text and p.resumed_at is null) as paused_at,
    p.because as still_because, onceward.micros(p.paused_at) as still_since,
    onceward.micros(p.until_at) as still_until
from onceward.subscriptions s
cross join (select onceward.moment($2::bigint) as now) t
left join onceward.deferrals d on d.subscription = s.subscription
left join lateral (
    select l.because, l.paused_at, l.until_at from onceward.pauses l
    where l.subscription = s.subscription and l.because is not null and l.resumed_at > t.now
    order by l.pause_id desc
    limit 1) p on true
where s.subscription = $1::text
group by s.subscription, s.lanes, s.types, s.terms, s.rate_per_second, s.rate_burst, t.now,
    p.because, p.paused_at, p.until_at
