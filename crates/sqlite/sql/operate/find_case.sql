SELECT
    subscription, state, owner, due_at, replays, regressions, reason, failures, deaths, waits,
    age_ms
FROM onceward_case
WHERE case_id = ?1
