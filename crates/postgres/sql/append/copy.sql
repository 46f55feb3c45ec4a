COPY onceward.outbox (
    id, source, aggregatetype, aggregateid, type, operationid, partitionkey,
    schemaversion, aggregateversion, headers, payload, payload_binary,
    occurred_at, expires_at, priority)
FROM STDIN (FORMAT binary)
