SELECT
    seq, id, coalesce(source, (SELECT source FROM onceward_meta)) AS source, type, aggregateid,
    coalesce(partitionkey, aggregateid) AS key, coalesce(operationid, id) AS operation, recorded_at, headers
FROM onceward_outbox
WHERE coalesce(operationid, id) = ?1
ORDER BY seq
LIMIT ?2
