UPDATE onceward_campaign SET subscription = ?2 WHERE subscription = ?1
