UPDATE onceward_lane
SET owner = NULL, is_suspect = 0, position = ?5, position_seq = ?6
WHERE subscription = ?1 AND lane = ?2 AND owner = ?3 AND epoch = ?4
