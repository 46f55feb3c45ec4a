UPDATE onceward_pause SET subscription = ?2 WHERE subscription = ?1
