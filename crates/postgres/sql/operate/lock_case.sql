select c.subscription, c.state, c.owner, onceward.micros(c.due_at) as due_at, c.replays,
    c.regressions, c.corrected_id, c.reason, c.failures, c.deaths, c.waits, c.age_ms
from onceward.cases c
where c.case_id = $1::bigint
for update
