-- What ran when its owner ended is due now. An unclean end counts as a death.
UPDATE onceward_deferral
SET kind = 'retry', due_at = coalesce(?5, (SELECT micros FROM onceward_clock)), deaths = deaths + ?4
WHERE subscription = ?1 AND slot BETWEEN ?2 AND ?3 AND kind = 'running'
