SELECT campaign_id, subscription, record
FROM onceward_campaign
WHERE (?1 IS NULL OR campaign_id = ?1)
  AND (?2 IS NULL OR subscription = ?2)
  AND (is_active = 1 OR NOT ?3)
  AND campaign_id > ?4
ORDER BY campaign_id
LIMIT ?5
