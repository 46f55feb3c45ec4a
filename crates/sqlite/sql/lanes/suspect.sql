UPDATE onceward_lane SET owner = NULL, is_suspect = 1 WHERE owner = ?1
