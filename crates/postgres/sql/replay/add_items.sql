insert into onceward.campaign_items (
    campaign_id, seq, subscription, id, type, key, recorded_at, case_id, generation, state, finding,
    note)
select $1::bigint, n.seq, $2::text, n.id, n.type, n.key,
    'epoch'::timestamptz + n.recorded_at * interval '1 microsecond',
    n.case_id, $3::integer, n.state, n.finding, n.note
from unnest($4::bigint[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bigint[],
    $10::text[], $11::text[], $12::text[])
    as n (seq, id, type, key, recorded_at, case_id, state, finding, note)
