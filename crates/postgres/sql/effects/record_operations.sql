-- In the order of the key, so that two transactions with the same keys wait and do not deadlock.
insert into onceward.operation_ledger (
    subscription, source, type, identity, generation,
    digest, ending, result, aggregateversion, aggregatetype, aggregateid)
select $1::text, e.source, e.type, e.identity, e.generation,
    e.digest, e.ending, e.result::json, e.aggregateversion, e.aggregatetype, e.aggregateid
from unnest(
    $2::text[], $3::text[], $4::text[], $5::integer[],
    $6::bytea[], $7::text[], $8::text[], $9::bigint[], $10::text[], $11::text[]
) as e (source, type, identity, generation, digest, ending, result, aggregateversion,
    aggregatetype, aggregateid)
order by e.source collate "C", e.type collate "C", e.identity collate "C", e.generation
on conflict do nothing
