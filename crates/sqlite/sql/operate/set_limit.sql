UPDATE onceward_subscription
SET concurrency_max = ?2, rate_per_second = ?3, rate_burst = ?4
WHERE subscription = ?1
