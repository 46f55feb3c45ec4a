-- The message as a retry that is due, with a budget of its own. What a case has is deferred nowhere
-- else. Should it be, this is the last word.
insert into onceward.deferrals as d (
    subscription, seq, slot, key, kind, due_at, failures, deaths, waits, failure, first_deferred_at)
select c.subscription, c.seq, c.slot, c.key, 'retry', t.now, 0, 0, 0, c.failure, t.now
from onceward.cases c, (select onceward.moment($2::bigint) as now) t
where c.case_id = $1::bigint
on conflict (subscription, seq) do update
set kind = excluded.kind, due_at = excluded.due_at, failures = excluded.failures,
    deaths = excluded.deaths, waits = excluded.waits, failure = excluded.failure,
    first_deferred_at = excluded.first_deferred_at
