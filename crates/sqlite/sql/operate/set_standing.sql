UPDATE onceward_case SET state = ?2, owner = ?3, due_at = ?4, replays = ?5, corrected_id = ?6
WHERE case_id = ?1
