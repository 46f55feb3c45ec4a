UPDATE onceward_campaign SET state = ?2, is_active = ?3, record = ?4 WHERE campaign_id = ?1
