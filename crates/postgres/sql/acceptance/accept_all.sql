-- In the order that was asked; of one key twice the second is known again.
select a.state, a.answer
from unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[])
    with ordinality as k (caller, key, digest, memory_ms, place)
cross join lateral onceward.accept(k.caller, k.key, k.digest, k.memory_ms, onceward.moment($5::bigint)) a
order by k.place
