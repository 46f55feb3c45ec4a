-- An operator's pause ends one that would have ended by itself.
UPDATE onceward_pause
SET resumed_at = max(paused_at, coalesce(?2, (SELECT micros FROM onceward_clock)))
WHERE subscription = ?1
  AND because IS NOT NULL
  AND resumed_at > coalesce(?2, (SELECT micros FROM onceward_clock))
