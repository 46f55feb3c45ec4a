DELETE FROM onceward_correction WHERE case_id = ?1
