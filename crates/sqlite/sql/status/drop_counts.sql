-- How many were given up of late in one way, up to a bound, by the partial indexes on them: the
-- latest ones of a day, and which of those are of the last hour.
SELECT
    min(?3, count(*)) AS last_day,
    min(?3, count(*) FILTER (
        WHERE n.finished_at > coalesce(?4, (SELECT micros FROM onceward_clock)) - 3600000000
    )) AS last_hour
FROM (
    SELECT * FROM (
        SELECT finished_at FROM onceward_ledger
        WHERE subscription = ?1 AND ending = ?2 AND ending IN ('expired', 'merged', 'shed')
          AND finished_at > coalesce(?4, (SELECT micros FROM onceward_clock)) - 86400000000
        ORDER BY finished_at DESC
        LIMIT ?3)
    UNION ALL
    SELECT * FROM (
        SELECT finished_at FROM onceward_operation_ledger
        WHERE subscription = ?1 AND ending = ?2 AND ending IN ('expired', 'merged', 'shed')
          AND finished_at > coalesce(?4, (SELECT micros FROM onceward_clock)) - 86400000000
        ORDER BY finished_at DESC
        LIMIT ?3)
) AS n
