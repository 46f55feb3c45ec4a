-- By message id or sequence, else by operation. The latest deliberate rerun counts.
SELECT ending, finished_at, result, generation FROM onceward_ledger
WHERE subscription = ?1 AND source = ?2 AND type = ?3 AND identity IN (?4, ?5)
UNION ALL
SELECT ending, finished_at, result, generation FROM onceward_operation_ledger
WHERE subscription = ?1 AND source = ?2 AND type = ?3 AND identity = ?6
ORDER BY generation DESC
LIMIT 1
