SELECT position_seq >= ?3 FROM onceward_lane WHERE subscription = ?1 AND lane = ?2
