delete from onceward.operation_ledger l
using (
    select o.subscription, o.source, o.type, o.identity, o.generation
    from onceward.operation_ledger o
    where o.finished_at < onceward.moment($1::bigint) - $2::bigint * interval '1 millisecond'
    order by o.finished_at
    limit $3::bigint
    for update skip locked) old
where l.subscription = old.subscription and l.source = old.source and l.type = old.type
  and l.identity = old.identity and l.generation = old.generation
