-- What went out, with what the records say of it now.
SELECT
    i.seq, d.kind, c.state, c.reason,
    d.seq IS NOT NULL AND EXISTS (
        SELECT 1 FROM onceward_case AS h
        WHERE h.subscription = i.subscription AND h.slot = d.slot AND h.holds_key = 1
          AND h.state IN ('open', 'acknowledged', 'corrected') AND h.key = d.key AND h.seq <> i.seq
    ) AS is_behind_case
FROM onceward_campaign_item AS i
LEFT JOIN onceward_deferral AS d ON d.subscription = i.subscription AND d.seq = i.seq
LEFT JOIN onceward_case AS c ON c.subscription = i.subscription AND c.seq = i.seq
WHERE i.campaign_id = ?1 AND i.state = 'running'
ORDER BY i.seq
