-- Pauses that ended by themselves long ago. One that counts for the age of a message which is still
-- deferred stays.
with old as (
    select p.pause_id, p.subscription, p.resumed_at
    from onceward.pauses p
    where p.because is not null
      and p.resumed_at < onceward.moment($1::bigint) - interval '90 days'
    order by p.pause_id
    limit $2::bigint
), first as (
    select o.subscription,
        (select min(d.first_deferred_at) from onceward.deferrals d
         where d.subscription = o.subscription) as deferred_at
    from (select distinct subscription from old) o
)
delete from onceward.pauses p
using old o
join first f on f.subscription = o.subscription
where p.pause_id = o.pause_id
  and (f.deferred_at is null or f.deferred_at >= o.resumed_at)
