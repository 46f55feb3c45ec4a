select l.subscription, l.lane, l.epoch, l.owner, l.position
from onceward.lanes l
where l.owner = $1::text
order by l.subscription, l.lane
for update of l
