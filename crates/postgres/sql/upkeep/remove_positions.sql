delete from onceward.positions p
where p.revision in (
    select o.revision from onceward.positions o
    where exists (
            select 1 from onceward.positions n
            where n.subscription = o.subscription and n.member = o.member and n.revision > o.revision)
       or not exists (select 1 from onceward.members m where m.member = o.member)
    order by o.revision
    limit $1::bigint
    for update skip locked)
