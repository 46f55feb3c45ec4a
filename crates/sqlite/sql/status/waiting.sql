-- The payload is not read: it lies at the end of the row.
SELECT
    o.seq, o.recorded_at, coalesce(o.partitionkey, o.aggregateid) AS key, o.type,
    CAST(o.headers ->> ?5 AS TEXT) AS tenant
FROM onceward_outbox AS o
WHERE o.seq > ?2 AND o.type IN (SELECT value FROM json_each(?3))
  AND (?4 IS NULL OR o.recorded_at >= ?4)
  AND NOT EXISTS (
      SELECT 1 FROM onceward_deferral AS d WHERE d.seq = o.seq AND d.subscription = ?1
  )
  AND NOT EXISTS (
      SELECT 1 FROM onceward_case AS c
      WHERE c.seq = o.seq AND c.subscription = ?1
  )
ORDER BY o.seq
