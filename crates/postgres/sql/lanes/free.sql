update onceward.lanes l
set owner = null, position = n.position
from unnest($3::integer[], $4::bigint[], $5::text[]) as n (lane, epoch, position)
where l.subscription = $1::text and l.lane = n.lane and l.epoch = n.epoch and l.owner = $2::text
