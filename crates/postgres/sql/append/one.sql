insert into onceward.outbox (
    id, source, aggregatetype, aggregateid, type, operationid, partitionkey,
    schemaversion, aggregateversion, headers, payload, payload_binary,
    occurred_at, expires_at, priority)
values (
    $1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text,
    $8::integer, $9::bigint, $10::text::json, $11::text::json, $12::bytea,
    'epoch'::timestamptz + $13::bigint * interval '1 microsecond',
    'epoch'::timestamptz + $14::bigint * interval '1 microsecond',
    $15::smallint)
