-- As page.sql, where no floor is known: for a sequence with a cache above one, whose numbers say
-- nothing about time, and after a snapshot that gave its floor up. The lowest sequence of the tick
-- is looked up by transaction, in the same snapshot as the rows.
with lowest as materialized (
    select min(l.seq) - 1 as seq from (
        -- Not merged with the query around it, which would look for the lowest from the beginning.
        select i.seq from onceward.outbox i where i.xid >= $2::xid8 offset 0) l
    where l.seq > (select era_floor from onceward.meta)
), merged as (
    select u.* from (
        (select o.* from onceward.outbox o
         where o.seq > coalesce((select seq from lowest), $1::bigint)
           and o.seq > $9::bigint
           and o.seq > (select era_floor from onceward.meta)
           and (o.xid >= $2::xid8) is true
           and (o.xid < $3::xid8) is true
           and o.xid <> all ($4::xid8[])
         order by o.seq
         limit $7::bigint + 1)
        union all
        (select o.* from onceward.outbox o
         where $6::boolean
           and o.xid = any ($5::xid8[])
           and o.seq > $9::bigint
           and o.seq > (select era_floor from onceward.meta)
         order by o.seq
         limit $7::bigint + 1)
    ) u
    order by u.seq
    limit $7::bigint + 1
), weighed as (
    select
        m.*,
        row_number() over by_seq as place,
        count(*) over () as candidates,
        sum(coalesce(pg_column_size(m.payload), 0) + coalesce(pg_column_size(m.payload_binary), 0))
            over (by_seq rows between unbounded preceding and 1 preceding) as bytes_before
    from merged m
    window by_seq as (order by m.seq)
), page as (
    select * from weighed w
    where w.place <= $7::bigint and (w.place = 1 or w.bytes_before < $8::bigint)
)
select
    case when coalesce(p.place, 1) = 1 then s.snapshot::text end as snapshot,
    case when coalesce(p.place, 1) = 1 then age(pg_snapshot_xmax(s.snapshot)::xid) end as started,
    p.candidates,
    p.xid::text as xid, p.seq, p.slot, p.id, coalesce(p.source, (select source from onceward.meta)) as source,
    p.aggregatetype, p.aggregateid, p.type, p.operationid, p.partitionkey,
    p.schemaversion, p.aggregateversion, p.headers::text as headers, p.payload::text as payload,
    p.payload_binary, onceward.micros(p.occurred_at) as occurred_at,
    onceward.micros(p.expires_at) as expires_at, p.priority,
    onceward.micros(p.recorded_at) as recorded_at,
    (select seq from lowest) as lowest
from (select pg_current_snapshot() as snapshot) s
left join page p on true
order by p.seq
