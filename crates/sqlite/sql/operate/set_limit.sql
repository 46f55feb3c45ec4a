UPDATE onceward_subscription SET concurrency_max = ?2 WHERE subscription = ?1
