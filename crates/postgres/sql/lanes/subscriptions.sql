select s.subscription, s.revision, s.concurrency_max, s.rate_per_second, s.rate_burst,
    exists (select from onceward.pauses p
            where p.subscription = s.subscription and p.resumed_at is null) as is_paused,
    exists (select from onceward.campaigns c
            where c.subscription = s.subscription and c.is_active) as has_campaign
from onceward.subscriptions s
order by s.subscription
