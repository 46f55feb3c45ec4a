select c.campaign_id, c.subscription, c.record, s.types, s.terms,
    (select u.report from onceward.upkeep u) as report,
    onceward.micros(onceward.moment($2::bigint)) as now
from onceward.campaigns c
left join onceward.subscriptions s on s.subscription = c.subscription
where c.campaign_id = $1::bigint
for update of c
