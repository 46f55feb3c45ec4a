insert into onceward.cases as c (
    subscription, xid, seq, slot, id, source, aggregatetype, aggregateid, type, operationid,
    partitionkey, schemaversion, aggregateversion, headers, payload, payload_binary,
    occurred_at, expires_at, priority, recorded_at,
    reason, failure, failures, deaths, waits, age_ms, holds_key, opened_at, key, fingerprint,
    first_opened_at, first_deferred_at)
select $1::text, $2::text::xid8, $3::bigint, $4::smallint, $5::text, $6::text, $7::text, $8::text, $9::text,
    $10::text, $11::text, $12::integer, $13::bigint, $14::text::json, $15::text::json, $16::bytea,
    'epoch'::timestamptz + $17::bigint * interval '1 microsecond',
    'epoch'::timestamptz + $18::bigint * interval '1 microsecond',
    $19::smallint,
    'epoch'::timestamptz + $20::bigint * interval '1 microsecond',
    $21::text, $22::text, $23::bigint, $24::bigint, $25::bigint, $26::bigint, $27::boolean,
    t.now, $29::text, $30::text, t.now,
    (select d.first_deferred_at from onceward.deferrals d
     where d.subscription = $1::text and d.seq = $3::bigint)
from (select onceward.moment($28::bigint) as now) t
on conflict (subscription, seq) do update
set reason = excluded.reason, failure = excluded.failure, failures = excluded.failures,
    deaths = excluded.deaths, waits = excluded.waits, age_ms = excluded.age_ms,
    holds_key = excluded.holds_key, opened_at = excluded.opened_at, key = excluded.key,
    fingerprint = excluded.fingerprint,
    -- Written twice because an answer was lost, a live case stays as it is. What was over is back.
    regressions = c.regressions + (c.state not in ('open', 'acknowledged', 'corrected'))::integer,
    state = case when c.state in ('acknowledged', 'corrected') then c.state else 'open' end,
    first_deferred_at = coalesce(excluded.first_deferred_at, c.first_deferred_at)
