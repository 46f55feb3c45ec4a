UPDATE onceward_campaign_item SET state = 'left' WHERE campaign_id = ?1 AND state = 'planned'
