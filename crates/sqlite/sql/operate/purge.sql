DELETE FROM onceward_case WHERE case_id = ?1
