DELETE FROM onceward_ledger
WHERE recordedtime < coalesce(?2, (SELECT micros FROM onceward_clock)) - ?1 * 1000
  AND rowid IN (SELECT rowid FROM onceward_ledger ORDER BY rowid LIMIT ?3)
