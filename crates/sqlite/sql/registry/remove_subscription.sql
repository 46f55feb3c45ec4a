DELETE FROM onceward_subscription WHERE subscription = ?1
