update onceward.campaigns
set state = $2::text, is_active = $3::boolean, record = $4::text
where campaign_id = $1::bigint
