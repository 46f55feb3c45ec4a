update onceward.lanes l
set owner = $2::text, epoch = l.epoch + 1, position = n.position
from unnest($3::integer[], $4::text[]) as n (lane, position)
where l.subscription = $1::text and l.lane = n.lane
