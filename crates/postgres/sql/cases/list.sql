select p.case_id, p.subscription, p.key, p.reason, p.failure, p.failures, p.deaths, p.waits,
    p.age_ms, p.state, p.owner, onceward.micros(p.due_at) as due_at, p.replays, p.regressions,
    p.fingerprint, p.corrected_id, k.payload::text as corrected_payload,
    k.payload_binary as corrected_payload_binary, p.holds_key, onceward.micros(p.first_opened_at) as first_opened_at,
    onceward.micros(p.opened_at) as opened_at,
    onceward.micros(p.first_deferred_at) as first_deferred_at,
    p.xid::text as xid, p.seq, p.slot, p.id, coalesce(p.source, (select source from onceward.meta)) as source,
    p.aggregatetype, p.aggregateid, p.type, p.operationid, p.partitionkey,
    p.schemaversion, p.aggregateversion, p.headers::text as headers, p.payload::text as payload,
    p.payload_binary, timestamptz_send(p.occurred_at) as occurred_at,
    timestamptz_send(p.expires_at) as expires_at, p.priority,
    timestamptz_send(p.recorded_at) as recorded_at
from (
    -- Numbers first, which indexes have; the rows of one page then. What is not asked for is left
    -- out when the statement is planned.
    select q.case_id
    from onceward.cases q
    where ($1::text is null or q.subscription = $1::text)
      and ($2::bigint is null or q.case_id = $2::bigint)
      and q.case_id > $3::bigint
      and ($5::text[] is null or q.state = any ($5::text[]))
      and ($6::text is null or q.owner = $6::text)
      and ($7::text is null or q.fingerprint = $7::text)
      and ($8::text is null
           or (pg_catalog.hashtextextended(q.type collate "C", 0)
                   = pg_catalog.hashtextextended($8::text collate "C", 0)
               and q.type = $8::text))
      and ($9::text is null
           or (pg_catalog.hashtextextended(coalesce(q.partitionkey, q.aggregateid) collate "C", 0)
                   = pg_catalog.hashtextextended($9::text collate "C", 0)
               and coalesce(q.partitionkey, q.aggregateid) = $9::text))
      and ($10::bigint is null
           or q.opened_at >= 'epoch'::timestamptz + $10::bigint * interval '1 microsecond')
      and ($11::bigint is null
           or q.opened_at < 'epoch'::timestamptz + $11::bigint * interval '1 microsecond')
    order by q.case_id
    limit $4::bigint) n
join onceward.cases p on p.case_id = n.case_id
left join onceward.corrections k on k.case_id = p.case_id and k.id = p.corrected_id
order by p.case_id
