select m.era, m.source, m.identity = onceward.identity() as is_home,
    onceward.is_standby() as is_standby
from onceward.meta m
