SELECT
    subscription, state, owner, due_at, replays, regressions, corrected_id, reason, failures, deaths, waits,
    age_ms
FROM onceward_case
WHERE case_id = ?1
