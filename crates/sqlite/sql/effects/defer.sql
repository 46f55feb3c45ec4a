-- One of kind held never overwrites: what is known of a message stays when it is read again. Nor does
-- one of kind running that knows of no failure, where one is known: it was released meanwhile.
INSERT INTO onceward_deferral (
    subscription, seq, slot, key, kind, due_at, failures, deaths, waits, failure, first_at
)
VALUES (
    ?1, ?2, ?3, ?4, ?5, coalesce(?11, (SELECT micros FROM onceward_clock)) + ?6 * 1000,
    ?7, ?8, ?9, ?10, coalesce(?11, (SELECT micros FROM onceward_clock))
)
ON CONFLICT (seq, subscription) DO UPDATE
SET kind = excluded.kind, due_at = excluded.due_at, failures = excluded.failures,
    deaths = excluded.deaths, waits = excluded.waits, failure = excluded.failure
WHERE excluded.kind <> 'held'
  AND NOT (excluded.kind = 'running' AND excluded.failure IS NULL
           AND onceward_deferral.failure IS NOT NULL)
