DELETE FROM onceward_member
WHERE fence IN (
    SELECT fence FROM onceward_member
    WHERE ended_at < coalesce(?2, (SELECT micros FROM onceward_clock)) - ?1 * 1000
    ORDER BY fence
    LIMIT ?3
)
