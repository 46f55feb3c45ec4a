-- An operator's pause ends whatever lasts beyond its beginning: one that would have ended by itself,
-- or one that ended later by a clock that was set back. Pauses never overlap.
UPDATE onceward_pause
SET resumed_at = max(paused_at, coalesce(?2, (SELECT micros FROM onceward_clock)))
WHERE subscription = ?1
  AND resumed_at > coalesce(?2, (SELECT micros FROM onceward_clock))
