INSERT INTO onceward_outbox (
    id, source, aggregatetype, aggregateid, type, operationid, partitionkey, schemaversion,
    aggregateversion, occurred_at, expires_at, priority, recorded_at, headers, payload,
    payload_binary
)
VALUES
(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, coalesce(?, (SELECT micros FROM onceward_clock)), ?, ?, ?)
