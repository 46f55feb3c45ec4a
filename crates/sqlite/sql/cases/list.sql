SELECT
    case_id, subscription, key, state, owner, due_at, replays, regressions, fingerprint, holds_key,
    reason, failure, failures, deaths, waits, age_ms, first_opened_at, opened_at, first_deferred_at,
    seq, id, source, aggregatetype, aggregateid, type, operationid, partitionkey, schemaversion,
    aggregateversion, occurred_at, expires_at, priority, recorded_at, headers, payload,
    payload_binary
FROM onceward_case
WHERE case_id > ?1 AND (?2 IS NULL OR subscription = ?2) AND (?3 IS NULL OR case_id = ?3)
  AND (?5 IS NULL OR state IN (SELECT value FROM json_each(?5)))
  AND (?6 IS NULL OR owner = ?6)
  AND (?7 IS NULL OR fingerprint = ?7)
  AND (?8 IS NULL OR type = ?8)
  AND (?9 IS NULL OR coalesce(partitionkey, aggregateid) = ?9)
  AND (?10 IS NULL OR opened_at >= ?10)
  AND (?11 IS NULL OR opened_at < ?11)
ORDER BY case_id
LIMIT ?4
