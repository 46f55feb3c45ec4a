DELETE FROM onceward_operation_ledger
WHERE finished_at < coalesce(?2, (SELECT micros FROM onceward_clock)) - ?1 * 1000
  AND rowid IN (SELECT rowid FROM onceward_operation_ledger ORDER BY rowid LIMIT ?3)
