select m.member, m.description, m.subscriptions,
    not onceward.has_lapsed(m.fence, t.now) as is_live
from onceward.members m, (select onceward.moment($1::bigint) as now) t
where m.ended_at is null
order by m.member
