select l.subscription, l.lane, l.epoch, l.owner, l.position
from onceward.lanes l
order by l.subscription, l.owner
