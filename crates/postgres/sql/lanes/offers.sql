-- Of lanes that are locked: a statement of its own, whose snapshot is taken after the lock.
select l.lane, l.epoch, l.owner, l.position, onceward.micros(l.not_before) as not_before,
    s.lanes,
    m.ended_at is not null or m.member is null as owner_ended,
    coalesce(m.ended_cleanly, false) as ended_cleanly
from onceward.lanes l
join onceward.subscriptions s on s.subscription = l.subscription
left join onceward.members m on m.member = l.owner
where l.subscription = $1::text and l.lane = any ($2::integer[])
order by l.lane
