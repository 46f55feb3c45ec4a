SELECT position FROM onceward_lane WHERE subscription = ?1 AND lane = ?2
