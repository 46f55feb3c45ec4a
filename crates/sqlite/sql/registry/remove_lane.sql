DELETE FROM onceward_lane WHERE subscription = ?1
