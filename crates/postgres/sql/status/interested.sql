-- Subscriptions that take a message, with what holds it up there.
select s.subscription, s.terms, l.lane, l.epoch, l.owner, l.position,
    d.kind, onceward.micros(d.due_at) as due_at, d.failures, d.deaths, d.waits, d.failure,
    greatest(0, floor(extract(epoch from t.now - d.first_deferred_at
        - onceward.paused_between(s.subscription, d.first_deferred_at, t.now)) * 1000))::bigint
        as age_ms,
    c.case_id, c.reason, c.state
from onceward.subscriptions s
join onceward.lanes l
    on l.subscription = s.subscription and l.lane = $4::integer * s.lanes / 1024
left join onceward.deferrals d on d.subscription = s.subscription and d.seq = $1::bigint
left join onceward.cases c
    on c.subscription = s.subscription and c.seq = $1::bigint
cross join (select onceward.moment($5::bigint) as now) t
where $2::text = any (s.types)
  and (l.not_before is null
       or l.not_before <= 'epoch'::timestamptz + $3::bigint * interval '1 microsecond')
order by s.subscription
