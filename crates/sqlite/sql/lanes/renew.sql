UPDATE onceward_member
SET renewed_at = coalesce(?3, (SELECT micros FROM onceward_clock))
WHERE fence = ?1 AND member = ?2 AND ended_at IS NULL
