UPDATE onceward_deferral
SET kind = 'retry', due_at = coalesce(?3, (SELECT micros FROM onceward_clock))
WHERE subscription = ?1 AND kind = 'operator' AND (?2 IS NULL OR key = ?2)
