SELECT concurrency_max FROM onceward_subscription WHERE subscription = ?1
