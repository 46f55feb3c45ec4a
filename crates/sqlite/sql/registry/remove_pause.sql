DELETE FROM onceward_pause WHERE subscription = ?1
