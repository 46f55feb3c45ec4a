-- Written twice because an answer was lost, a live case stays as it is. What was over is back.
INSERT INTO onceward_case (
    subscription, holds_key, reason, failure, failures, deaths, waits, age_ms, first_opened_at,
    opened_at, first_deferred_at, slot, key, seq, recorded_at, id, source, aggregatetype,
    aggregateid, type, operationid, partitionkey, schemaversion, aggregateversion, occurred_at,
    expires_at, priority, headers, payload, payload_binary, fingerprint
)
VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, coalesce(?9, (SELECT micros FROM onceward_clock)),
    coalesce(?9, (SELECT micros FROM onceward_clock)),
    (SELECT first_at FROM onceward_deferral WHERE seq = ?12 AND subscription = ?1), ?10, ?11, ?12,
    ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29
)
ON CONFLICT (seq, subscription) DO UPDATE
SET regressions = regressions + (state NOT IN ('open', 'acknowledged', 'corrected')),
    state = CASE WHEN state IN ('acknowledged', 'corrected') THEN state ELSE 'open' END,
    holds_key = excluded.holds_key, reason = excluded.reason, key = excluded.key,
    failure = excluded.failure, failures = excluded.failures, deaths = excluded.deaths,
    waits = excluded.waits, age_ms = excluded.age_ms, opened_at = excluded.opened_at,
    fingerprint = excluded.fingerprint,
    first_deferred_at = coalesce(excluded.first_deferred_at, first_deferred_at)
