UPDATE onceward_lane SET subscription = ?2 WHERE subscription = ?1
