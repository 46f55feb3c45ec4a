-- Members that may still record something under a subscription's former name.
select m.fence, not onceward.has_lapsed(m.fence, t.now) as is_live
from onceward.members m, (select onceward.moment($2::bigint) as now) t
where m.ended_at is null and $1::text = any (m.subscriptions)
order by m.fence
