UPDATE onceward_pause
SET resumed_at = coalesce(?2, (SELECT micros FROM onceward_clock))
WHERE subscription = ?1 AND resumed_at IS NULL
