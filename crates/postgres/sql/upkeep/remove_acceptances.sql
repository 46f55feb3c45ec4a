delete from onceward.acceptances a
using (
    select o.caller, o.key from onceward.acceptances o
    where o.expires_at < onceward.moment($1::bigint)
    order by o.expires_at
    limit $2::bigint
    for update skip locked) old
where a.caller = old.caller and a.key = old.key
