DELETE FROM onceward_deferral WHERE subscription = ?1
