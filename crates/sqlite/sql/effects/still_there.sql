SELECT seq FROM onceward_deferral
WHERE subscription = ?1 AND seq IN (SELECT value FROM json_each(?2))
