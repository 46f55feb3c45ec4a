-- The era and the last number given out come from the same snapshot as the rows.
SELECT
    (SELECT max(era) FROM onceward_era) AS era,
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'onceward_outbox'), 0) AS head_seq,
    seq, id, coalesce(source, (SELECT source FROM onceward_meta)) AS source, aggregatetype,
    aggregateid, type, operationid, partitionkey, schemaversion, aggregateversion, occurred_at,
    expires_at, priority, recorded_at, headers, payload, payload_binary
FROM onceward_outbox
WHERE seq > ?1 AND (?2 IS NULL OR seq <= ?2)
ORDER BY seq
LIMIT ?3
