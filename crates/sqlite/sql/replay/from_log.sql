-- Rows that every lane of the subscription has come past: up to ?8.
SELECT
    o.seq, coalesce(o.partitionkey, o.aggregateid) AS key, o.id,
    coalesce(o.source, (SELECT source FROM onceward_meta)) AS source, o.type,
    coalesce(o.operationid, o.id) AS operation, o.recorded_at, NULL AS case_id, NULL AS reason,
    1 AS is_there,
    EXISTS (SELECT 1 FROM onceward_case AS c
            WHERE c.subscription = ?1 AND c.seq = o.seq
              AND c.state IN ('open', 'acknowledged', 'corrected')) AS has_live_case,
    coalesce(o.partitionkey, o.aggregateid) IN (
        SELECT h.key FROM onceward_case AS h
        WHERE h.subscription = ?1 AND h.holds_key = 1
          AND h.state IN ('open', 'acknowledged', 'corrected')) AS is_behind_case,
    EXISTS (SELECT 1 FROM onceward_case AS c
            WHERE c.subscription = ?1 AND c.seq = o.seq
              AND c.state IN ('discarded', 'waived')) AS is_given_up,
    EXISTS (SELECT 1 FROM onceward_deferral AS d
            WHERE d.subscription = ?1 AND d.seq = o.seq) AS is_deferred,
    EXISTS (SELECT 1 FROM onceward_campaign_item AS i
            WHERE i.subscription = ?1 AND i.seq = o.seq
              AND i.state IN ('planned', 'running')) AS is_in_campaign
FROM onceward_outbox AS o
WHERE o.seq > ?2 AND o.seq <= ?8
  AND o.type IN (SELECT value FROM json_each(?3))
  AND (?4 IS NULL OR coalesce(o.partitionkey, o.aggregateid) = ?4)
  AND (?5 IS NULL OR o.recorded_at >= ?5)
  AND (?6 IS NULL OR o.recorded_at < ?6)
ORDER BY o.seq
LIMIT ?7
