select concurrency_max, rate_per_second, rate_burst
from onceward.subscriptions
where subscription = $1::text
