update onceward.campaign_items
set state = 'left'
where campaign_id = $1::bigint and state = 'planned'
