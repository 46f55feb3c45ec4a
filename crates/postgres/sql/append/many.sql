insert into onceward.outbox (
    id, source, aggregatetype, aggregateid, type, operationid, partitionkey,
    schemaversion, aggregateversion, headers, payload, payload_binary,
    occurred_at, expires_at, priority)
select
    m.id, m.source, m.aggregatetype, m.aggregateid, m.type, m.operationid, m.partitionkey,
    m.schemaversion, m.aggregateversion, m.headers::json, m.payload::json, m.payload_binary,
    'epoch'::timestamptz + m.occurred_at * interval '1 microsecond',
    'epoch'::timestamptz + m.expires_at * interval '1 microsecond',
    m.priority
from unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
    $8::integer[], $9::bigint[], $10::text[], $11::text[], $12::bytea[],
    $13::bigint[], $14::bigint[], $15::smallint[]
) with ordinality as m (
    id, source, aggregatetype, aggregateid, type, operationid, partitionkey,
    schemaversion, aggregateversion, headers, payload, payload_binary,
    occurred_at, expires_at, priority, place)
order by m.place
