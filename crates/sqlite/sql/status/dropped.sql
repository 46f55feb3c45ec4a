-- What was given up in one way, the latest first, by the partial indexes on it.
SELECT * FROM (
    SELECT * FROM (
        SELECT source, type, identity, generation, result, finished_at FROM onceward_ledger
        WHERE subscription = ?1 AND ending = ?2 AND ending IN ('expired', 'merged', 'shed')
          AND (finished_at, source, type, identity, generation) < (?3, ?4, ?5, ?6, ?7)
        ORDER BY finished_at DESC, source DESC, type DESC, identity DESC, generation DESC
        LIMIT ?8
    )
    UNION ALL
    SELECT * FROM (
        SELECT source, type, identity, generation, result, finished_at FROM onceward_operation_ledger
        WHERE subscription = ?1 AND ending = ?2 AND ending IN ('expired', 'merged', 'shed')
          AND (finished_at, source, type, identity, generation) < (?3, ?4, ?5, ?6, ?7)
        ORDER BY finished_at DESC, source DESC, type DESC, identity DESC, generation DESC
        LIMIT ?8
    )
)
ORDER BY finished_at DESC, source DESC, type DESC, identity DESC, generation DESC
LIMIT ?8
