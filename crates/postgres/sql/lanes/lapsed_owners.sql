select distinct m.member, m.fence
from onceward.lanes l
join onceward.members m on m.member = l.owner,
    (select onceward.moment($3::bigint) as now) t
where l.subscription = $1::text
  and l.lane = any ($2::integer[])
  and m.ended_at is null
  and onceward.has_lapsed(m.fence, t.now)
order by m.fence
