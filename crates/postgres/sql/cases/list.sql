select p.case_id, p.subscription, p.reason, p.failure, p.failures, p.deaths, p.waits, p.age_ms,
    p.holds_key, onceward.micros(p.opened_at) as opened_at,
    onceward.micros(p.first_deferred_at) as first_deferred_at,
    p.xid::text as xid, p.seq, p.slot, p.id, coalesce(p.source, (select source from onceward.meta)) as source,
    p.aggregatetype, p.aggregateid, p.type, p.operationid, p.partitionkey,
    p.schemaversion, p.aggregateversion, p.headers::text as headers, p.payload::text as payload,
    p.payload_binary, onceward.micros(p.occurred_at) as occurred_at,
    onceward.micros(p.expires_at) as expires_at, p.priority,
    onceward.micros(p.recorded_at) as recorded_at
from onceward.cases p
where ($1::text is null or p.subscription = $1::text)
  and ($2::bigint is null or p.case_id = $2::bigint)
  and p.case_id > $3::bigint
order by p.case_id
limit $4::bigint
