UPDATE onceward_lane SET owner = NULL, is_suspect = 0 WHERE owner = ?1
