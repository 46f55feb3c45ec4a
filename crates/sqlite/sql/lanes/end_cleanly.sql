UPDATE onceward_member
SET ended_at = coalesce(?3, (SELECT micros FROM onceward_clock)), ended_cleanly = 1
WHERE fence = ?1 AND member = ?2 AND ended_at IS NULL
