-- The last pause, where it ends by itself and reaches into the time in question.
UPDATE onceward_pause
SET
    resumed_at = max(
        resumed_at, coalesce(?6, (SELECT micros FROM onceward_clock)) + ?5 * 1000),
    because = ?2,
    until_at = coalesce(?6, (SELECT micros FROM onceward_clock)) + ?4 * 1000
WHERE pause_id = (SELECT max(l.pause_id) FROM onceward_pause AS l WHERE l.subscription = ?1)
  AND because IS NOT NULL
  AND resumed_at >= coalesce(?6, (SELECT micros FROM onceward_clock)) - ?3 * 1000
