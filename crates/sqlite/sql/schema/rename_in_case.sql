UPDATE onceward_case SET subscription = ?2 WHERE subscription = ?1
