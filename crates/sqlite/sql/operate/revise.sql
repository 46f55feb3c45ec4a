UPDATE onceward_subscription SET revision = revision + 1 WHERE subscription = ?1
