select s.subscription, s.revision, s.concurrency_max,
    exists (select from onceward.pauses p
            where p.subscription = s.subscription and p.resumed_at is null) as is_paused
from onceward.subscriptions s
order by s.subscription
