-- Conditions whose parameter is null are left out before it is prepared: an index is used only for
-- what is there. ?12 and ?13 are ?2 and ?5 where a time is asked for: its index has the two, and theirs
-- would be walked whole. Numbers first, which indexes have, then the rows of one page.
SELECT
    c.case_id, c.subscription, c.key, c.state, c.owner, c.due_at, c.replays, c.regressions,
    c.fingerprint, c.holds_key, c.reason, c.failure, c.failures, c.deaths, c.waits, c.age_ms,
    c.first_opened_at, c.opened_at, c.first_deferred_at, c.seq, c.id, c.source, c.aggregatetype,
    c.aggregateid, c.type, c.operationid, c.partitionkey, c.schemaversion, c.aggregateversion,
    c.occurred_at, c.expires_at, c.priority, c.recorded_at, c.headers, c.payload,
    c.payload_binary, c.corrected_id, k.payload AS corrected_payload,
    k.payload_binary AS corrected_payload_binary
FROM (
    SELECT case_id
    FROM onceward_case
    WHERE case_id > ?1
      AND (?2 IS NULL OR subscription = ?2)
      AND (?12 IS NULL OR +subscription = ?12)
      AND (?3 IS NULL OR case_id = ?3)
      AND (?5 IS NULL OR state IN (SELECT value FROM json_each(?5)))
      AND (?13 IS NULL OR +state IN (SELECT value FROM json_each(?13)))
      AND (?6 IS NULL OR owner = ?6)
      AND (?7 IS NULL OR fingerprint = ?7)
      AND (?8 IS NULL OR type = ?8)
      AND (?9 IS NULL OR coalesce(partitionkey, aggregateid) = ?9)
      AND (?10 IS NULL OR opened_at >= ?10)
      AND (?11 IS NULL OR opened_at < ?11)
    ORDER BY case_id
    LIMIT ?4
) AS n
JOIN onceward_case AS c ON c.case_id = n.case_id
LEFT JOIN onceward_correction AS k ON k.case_id = c.case_id AND k.id = c.corrected_id
ORDER BY c.case_id
