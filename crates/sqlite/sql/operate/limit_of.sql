SELECT concurrency_max, rate_per_second, rate_burst
FROM onceward_subscription
WHERE subscription = ?1
