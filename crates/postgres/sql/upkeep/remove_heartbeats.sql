delete from onceward.heartbeats h
where h.revision in (
    select o.revision from onceward.heartbeats o
    where exists (select 1 from onceward.heartbeats n where n.fence = o.fence and n.revision > o.revision)
       or not exists (select 1 from onceward.members m where m.fence = o.fence)
    order by o.revision
    limit $1::bigint
    for update skip locked)
