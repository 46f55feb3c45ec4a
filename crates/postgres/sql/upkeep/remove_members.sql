-- Ended, or lapsed, a day ago and without lanes: nobody asks after them any more.
delete from onceward.members m
where m.fence in (
    select o.fence from onceward.members o
    where not exists (select 1 from onceward.lanes l where l.owner = o.member)
      and case
            when o.ended_at is not null
                then o.ended_at < onceward.moment($1::bigint) - interval '1 day'
            else not exists (
                select 1 from onceward.heartbeats h
                where h.fence = o.fence
                  and h.beat_at + o.lease_ms * interval '1 millisecond'
                      > onceward.moment($1::bigint) - interval '1 day')
          end
    order by o.fence
    limit $2::bigint
    for update skip locked)
