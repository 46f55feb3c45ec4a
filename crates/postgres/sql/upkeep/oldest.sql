select onceward.micros(o.recorded_at) as recorded_at
from onceward.outbox o order by o.seq limit 1
