-- What ran when its owner died is due now, with a death. What ran when its owner left stays as it
-- is, so that the next one knows that it may have happened.
UPDATE onceward_deferral
SET kind = 'retry', due_at = coalesce(?4, (SELECT micros FROM onceward_clock)), deaths = deaths + 1
WHERE subscription = ?1 AND slot BETWEEN ?2 AND ?3 AND kind = 'running'
