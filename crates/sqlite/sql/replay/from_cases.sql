SELECT
    c.seq, coalesce(c.partitionkey, c.aggregateid) AS key, c.id,
    coalesce(c.source, (SELECT source FROM onceward_meta)) AS source, c.type,
    coalesce(c.operationid, c.id) AS operation, c.recorded_at, c.case_id, c.reason,
    1 AS is_there, 0 AS has_live_case, 0 AS is_behind_case,
    0 AS is_given_up,
    EXISTS (SELECT 1 FROM onceward_deferral AS d
            WHERE d.subscription = c.subscription AND d.seq = c.seq) AS is_deferred,
    EXISTS (SELECT 1 FROM onceward_campaign_item AS i
            WHERE i.subscription = c.subscription AND i.seq = c.seq
              AND i.state IN ('planned', 'running')) AS is_in_campaign
FROM onceward_case AS c
WHERE +c.subscription = ?1 AND +c.state IN ('open', 'acknowledged', 'corrected') AND +c.seq > ?2
  AND (?3 IS NULL OR c.case_id IN (SELECT value FROM json_each(?3)))
  AND (?4 IS NULL OR c.fingerprint = ?4)
  AND (?5 IS NULL OR c.owner = ?5)
  AND (?6 IS NULL OR c.type = ?6)
  AND (?7 IS NULL OR coalesce(c.partitionkey, c.aggregateid) = ?7)
  AND (?8 IS NULL OR c.opened_at >= ?8)
  AND (?9 IS NULL OR c.opened_at < ?9)
ORDER BY c.seq
LIMIT ?10
