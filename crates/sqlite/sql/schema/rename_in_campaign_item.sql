UPDATE onceward_campaign_item SET subscription = ?2 WHERE subscription = ?1
