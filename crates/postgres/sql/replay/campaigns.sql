select c.campaign_id, c.subscription, c.record
from onceward.campaigns c
where ($1::bigint is null or c.campaign_id = $1::bigint)
  and ($2::text is null or c.subscription = $2::text)
  and (c.is_active or not $3::boolean)
  and c.campaign_id > $4::bigint
order by c.campaign_id
limit $5::bigint
