-- In the order of the key, so that two transactions with the same keys wait and do not deadlock.
insert into onceward.ledger (
    subscription, source, type, identity, generation, recordedtime,
    digest, ending, result, aggregateversion, aggregatetype, aggregateid)
select $1::text, e.source, e.type, e.identity, e.generation,
    'epoch'::timestamptz + e.recordedtime * interval '1 microsecond',
    e.digest, e.ending, e.result::json, e.aggregateversion, e.aggregatetype, e.aggregateid
from unnest(
    $2::text[], $3::text[], $4::text[], $5::integer[], $6::bigint[],
    $7::bytea[], $8::text[], $9::text[], $10::bigint[], $11::text[], $12::text[]
) as e (source, type, identity, generation, recordedtime, digest, ending, result, aggregateversion,
    aggregatetype, aggregateid)
order by e.source collate "C", e.type collate "C", e.identity collate "C", e.generation
on conflict do nothing
