select exists (select from onceward.pauses p
               where p.subscription = s.subscription and p.resumed_at is null) as is_paused
from onceward.subscriptions s
where s.subscription = $1::text
for update of s
