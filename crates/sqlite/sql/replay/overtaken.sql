-- The last message of each key that is done, among ?6 rows of the log from ?2 on. Up to ?5 every
-- lane has come past.
WITH later AS (
    SELECT seq, type, coalesce(partitionkey, aggregateid) AS key
    FROM onceward_outbox
    WHERE seq > ?2
    ORDER BY seq
    LIMIT ?6
)
SELECT l.key, max(l.seq) AS seq, NULL AS seen_to
FROM later AS l
WHERE l.seq <= ?5
  AND l.key IN (SELECT value FROM json_each(?3))
  AND l.type IN (SELECT value FROM json_each(?4))
  AND NOT EXISTS (SELECT 1 FROM onceward_deferral AS d
                  WHERE d.subscription = ?1 AND d.seq = l.seq)
  AND NOT EXISTS (SELECT 1 FROM onceward_case AS c
                  WHERE c.subscription = ?1 AND c.seq = l.seq AND c.state <> 'replayed')
GROUP BY l.key
UNION ALL
SELECT NULL, NULL, CASE WHEN count(*) = ?6 THEN max(seq) END FROM later
