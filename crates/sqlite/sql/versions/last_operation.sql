SELECT aggregateversion FROM onceward_operation_ledger
WHERE subscription = ?1 AND aggregateid = ?2 AND aggregatetype = ?3 AND source = ?4
  AND generation = ?5 AND aggregateversion IS NOT NULL
ORDER BY aggregateversion DESC
LIMIT 1
