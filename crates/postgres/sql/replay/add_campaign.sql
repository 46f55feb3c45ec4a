insert into onceward.campaigns (subscription, kind, generation, state, is_active, record)
values ($1::text, $2::text, $3::integer, 'planned', false, $4::text)
returning campaign_id
