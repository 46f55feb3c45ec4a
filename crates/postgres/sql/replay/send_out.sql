-- Messages of the log as retries that are due, with a budget of their own. The key is the
-- subscription's own, which the item has.
insert into onceward.deferrals (
    subscription, seq, slot, key, kind, due_at, failures, deaths, waits, failure, first_deferred_at)
select i.subscription, i.seq, o.slot, i.key, 'retry', t.now, 0, 0, 0, $3::text, t.now
from onceward.campaign_items i
join onceward.outbox o on o.seq = i.seq
cross join (select onceward.moment($4::bigint) as now) t
where i.campaign_id = $1::bigint and i.seq = any ($2::bigint[])
