-- The next ones to go out, looked at anew: much may have happened since they were chosen.
SELECT
    i.seq, coalesce(o.partitionkey, o.aggregateid, i.key) AS key, i.id, i.type, i.case_id,
    coalesce(o.source, (SELECT source FROM onceward_meta)) AS source,
    coalesce(o.operationid, i.id) AS operation, i.recorded_at, c.reason,
    o.seq IS NOT NULL OR i.case_id IS NOT NULL AS is_there,
    i.case_id IS NULL AND coalesce(c.state IN ('open', 'acknowledged', 'corrected'), 0) AS has_live_case,
    i.case_id IS NULL AND i.key IN (
        SELECT h.key FROM onceward_case AS h
        WHERE h.subscription = (
            SELECT m.subscription FROM onceward_campaign AS m WHERE m.campaign_id = ?1)
          AND h.holds_key = 1 AND h.state IN ('open', 'acknowledged', 'corrected')) AS is_behind_case,
    i.case_id IS NULL AND coalesce(c.state IN ('discarded', 'waived'), 0) AS is_given_up,
    EXISTS (SELECT 1 FROM onceward_deferral AS d
            WHERE d.subscription = i.subscription AND d.seq = i.seq) AS is_deferred,
    0 AS is_in_campaign
FROM onceward_campaign_item AS i
LEFT JOIN onceward_outbox AS o ON o.seq = i.seq
LEFT JOIN onceward_case AS c ON c.subscription = i.subscription AND c.seq = i.seq
WHERE i.campaign_id = ?1 AND i.state = 'planned'
ORDER BY i.seq
LIMIT ?2
