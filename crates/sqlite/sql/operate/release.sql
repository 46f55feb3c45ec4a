-- The message as a retry that is due, with a budget of its own. What a case has is deferred nowhere
-- else. Should it be, this is the last word.
INSERT INTO onceward_deferral (
    subscription, seq, slot, key, kind, due_at, failures, deaths, waits, failure, first_at
)
SELECT
    c.subscription, c.seq, c.slot, c.key, 'retry', t.now, 0, 0, 0, c.failure, t.now
FROM onceward_case AS c, (SELECT coalesce(?2, (SELECT micros FROM onceward_clock)) AS now) AS t
WHERE c.case_id = ?1
ON CONFLICT (seq, subscription) DO UPDATE
SET kind = excluded.kind, due_at = excluded.due_at, failures = excluded.failures,
    deaths = excluded.deaths, waits = excluded.waits, failure = excluded.failure,
    first_at = excluded.first_at
