UPDATE onceward_subscription SET subscription = ?2 WHERE subscription = ?1
