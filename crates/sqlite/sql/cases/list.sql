SELECT
    case_id, subscription, state, holds_key, reason, failure, failures, deaths, waits, age_ms,
    opened_at, first_deferred_at, seq, id, source, aggregatetype, aggregateid, type, operationid,
    partitionkey, schemaversion, aggregateversion, occurred_at, expires_at, priority, recorded_at,
    headers, payload, payload_binary
FROM onceward_case
WHERE case_id > ?1 AND (?2 IS NULL OR subscription = ?2) AND (?3 IS NULL OR case_id = ?3)
ORDER BY case_id
LIMIT ?4
