SELECT seq, id, type, key, case_id, state, finding, note, started_at, ended_at
FROM onceward_campaign_item
WHERE campaign_id = ?1 AND seq > ?2
  AND (?3 IS NULL OR state IN (SELECT value FROM json_each(?3)))
ORDER BY seq
LIMIT ?4
