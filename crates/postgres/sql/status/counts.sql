select s.lanes, s.types, s.terms,
    onceward.micros(onceward.moment($2::bigint)) as now,
    count(*) filter (where d.kind = 'retry') as retry,
    count(*) filter (where d.kind = 'held') as held,
    count(*) filter (where d.kind = 'running') as running,
    count(*) filter (where d.kind = 'operator') as operator,
    count(*) filter (where d.kind = 'gap') as gap,
    onceward.micros(min(d.first_deferred_at)) as oldest_deferred_at,
    (select count(*) from onceward.cases c
     where c.subscription = $1::text and c.state in ('open', 'acknowledged', 'corrected')) as quarantined,
    (select onceward.micros(p.paused_at) from onceward.pauses p
     where p.subscription = $1::text and p.resumed_at is null) as paused_at
from onceward.subscriptions s
left join onceward.deferrals d on d.subscription = s.subscription
where s.subscription = $1::text
group by s.subscription, s.lanes, s.types, s.terms
