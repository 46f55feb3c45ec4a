UPDATE onceward_deferral SET subscription = ?2 WHERE subscription = ?1
