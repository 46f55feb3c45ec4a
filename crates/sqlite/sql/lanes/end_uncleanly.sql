UPDATE onceward_member
SET ended_at = coalesce(?2, (SELECT micros FROM onceward_clock)), ended_cleanly = 0
WHERE member = ?1 AND ended_at IS NULL
