UPDATE onceward_deferral
SET kind = 'held', due_at = coalesce(?3, (SELECT micros FROM onceward_clock))
WHERE subscription = ?1 AND seq IN (SELECT value FROM json_each(?2)) AND kind = 'running'
