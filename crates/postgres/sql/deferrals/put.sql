-- One of kind held never overwrites: what is known of a message stays when it is read again. Nor does
-- one of kind running that knows of no failure, where one is known: it was released meanwhile.
insert into onceward.deferrals as d (
    subscription, seq, slot, key, kind, due_at, failures, deaths, waits, failure, first_deferred_at)
select $1::text, n.seq, n.slot, n.key, n.kind, t.now + n.due_in_ms * interval '1 millisecond',
    n.failures, n.deaths, n.waits, n.failure, t.now
from unnest(
    $2::bigint[], $3::smallint[], $4::text[], $5::text[], $6::bigint[],
    $7::bigint[], $8::bigint[], $9::bigint[], $10::text[]
) as n (seq, slot, key, kind, due_in_ms, failures, deaths, waits, failure),
    (select onceward.moment($11::bigint) as now) t
order by n.seq
on conflict (subscription, seq) do update
set kind = excluded.kind, due_at = excluded.due_at, failures = excluded.failures,
    deaths = excluded.deaths, waits = excluded.waits, failure = excluded.failure
where excluded.kind <> 'held'
  and not (excluded.kind = 'running' and excluded.failure is null and d.failure is not null)
