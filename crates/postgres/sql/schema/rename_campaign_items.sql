update onceward.campaign_items set subscription = $2::text where subscription = $1::text
