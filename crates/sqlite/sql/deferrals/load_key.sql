SELECT
    d.kind, d.failures, d.deaths, d.waits, d.failure,
    max(0, d.due_at - coalesce(?6, (SELECT micros FROM onceward_clock))) AS due_in_micros,
    max(0, coalesce(?6, (SELECT micros FROM onceward_clock)) - d.first_at) AS age_micros,
    o.seq, o.id, coalesce(o.source, (SELECT source FROM onceward_meta)) AS source,
    o.aggregatetype, o.aggregateid, o.type, o.operationid, o.partitionkey, o.schemaversion,
    o.aggregateversion, o.occurred_at, o.expires_at, o.priority, o.recorded_at, o.headers,
    o.payload, o.payload_binary
FROM onceward_deferral AS d
JOIN onceward_outbox AS o ON o.seq = d.seq
WHERE d.subscription = ?1 AND d.slot = ?2 AND d.key = ?3 AND d.seq > ?4
ORDER BY d.seq
LIMIT ?5
