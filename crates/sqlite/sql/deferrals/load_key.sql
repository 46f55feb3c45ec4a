-- With ?7 to ?10 only versions of one aggregate, up to one of them.
-- One that was released from its case comes from there where the log has forgotten its row, and what
-- has taken its place where it was corrected.
SELECT
    d.kind, d.failures, d.deaths, d.waits, d.failure,
    max(0, d.due_at - t.now) AS due_in_micros,
    max(0, t.now - d.first_at - coalesce((
        SELECT sum(max(0,
            min(coalesce(p.resumed_at, t.now), t.now) - max(p.paused_at, d.first_at)))
        FROM onceward_pause AS p
        WHERE p.subscription = d.subscription
          AND (p.resumed_at IS NULL OR p.resumed_at > d.first_at)
    ), 0)) AS age_micros,
    k.id AS corrected_id, k.payload AS corrected_payload,
    k.payload_binary AS corrected_payload_binary,
    coalesce((SELECT max(i.generation) FROM onceward_campaign_item AS i
              WHERE i.subscription = ?1 AND i.seq = d.seq
                AND i.generation > 0 AND i.started_at IS NOT NULL), 0) AS generation,
    d.seq, coalesce(o.id, c.id) AS id,
    coalesce(o.source, c.source, (SELECT source FROM onceward_meta)) AS source,
    coalesce(o.aggregatetype, c.aggregatetype) AS aggregatetype,
    coalesce(o.aggregateid, c.aggregateid) AS aggregateid, coalesce(o.type, c.type) AS type,
    coalesce(o.operationid, c.operationid) AS operationid,
    coalesce(o.partitionkey, c.partitionkey) AS partitionkey,
    coalesce(o.schemaversion, c.schemaversion) AS schemaversion,
    coalesce(o.aggregateversion, c.aggregateversion) AS aggregateversion,
    coalesce(o.occurred_at, c.occurred_at) AS occurred_at,
    coalesce(o.expires_at, c.expires_at) AS expires_at, coalesce(o.priority, c.priority) AS priority,
    coalesce(o.recorded_at, c.recorded_at) AS recorded_at, coalesce(o.headers, c.headers) AS headers,
    coalesce(o.payload, c.payload) AS payload,
    coalesce(o.payload_binary, c.payload_binary) AS payload_binary
FROM onceward_deferral AS d
JOIN (SELECT coalesce(?6, (SELECT micros FROM onceward_clock)) AS now) AS t
LEFT JOIN onceward_outbox AS o ON o.seq = d.seq
LEFT JOIN onceward_case AS c ON c.seq = d.seq AND c.subscription = d.subscription
LEFT JOIN onceward_correction AS k ON k.case_id = c.case_id AND k.id = c.corrected_id
WHERE d.subscription = ?1 AND d.slot = ?2 AND d.key = ?3 AND d.seq > ?4
  AND coalesce(o.seq, c.seq) IS NOT NULL
  AND (?7 IS NULL OR (
      coalesce(o.aggregateversion, c.aggregateversion) <= ?7
      AND coalesce(o.aggregatetype, c.aggregatetype) = ?8
      AND coalesce(o.aggregateid, c.aggregateid) = ?9
      AND coalesce(o.source, c.source, (SELECT source FROM onceward_meta)) = ?10
  ))
ORDER BY d.seq
LIMIT ?5
