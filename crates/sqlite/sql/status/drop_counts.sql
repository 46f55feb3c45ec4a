-- How many were given up of late in one way, up to a bound, by the partial indexes on them.
SELECT
    (SELECT count(*) FROM (
            SELECT 1 FROM onceward_ledger
            WHERE subscription = ?1 AND ending = ?2 AND ending IN ('expired', 'merged', 'shed')
              AND finished_at > t.now - 3600000000
            UNION ALL
            SELECT 1 FROM onceward_operation_ledger
            WHERE subscription = ?1 AND ending = ?2 AND ending IN ('expired', 'merged', 'shed')
              AND finished_at > t.now - 3600000000
            LIMIT ?3)) AS last_hour,
    (SELECT count(*) FROM (
            SELECT 1 FROM onceward_ledger
            WHERE subscription = ?1 AND ending = ?2 AND ending IN ('expired', 'merged', 'shed')
              AND finished_at > t.now - 86400000000
            UNION ALL
            SELECT 1 FROM onceward_operation_ledger
            WHERE subscription = ?1 AND ending = ?2 AND ending IN ('expired', 'merged', 'shed')
              AND finished_at > t.now - 86400000000
            LIMIT ?3)) AS last_day
FROM (SELECT coalesce(?4, (SELECT micros FROM onceward_clock)) AS now) AS t
