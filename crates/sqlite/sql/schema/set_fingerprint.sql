UPDATE onceward_case SET fingerprint = ?2 WHERE case_id = ?1
