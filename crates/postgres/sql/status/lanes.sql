select l.lane, l.epoch, l.owner, l.position, m.description,
    onceward.micros(l.not_before) as not_before,
    m.member is not null and m.ended_at is null
        and not onceward.has_lapsed(m.fence, onceward.moment($2::bigint)) as is_live
from onceward.lanes l
left join onceward.members m on m.member = l.owner
where l.subscription = $1::text
order by l.lane
