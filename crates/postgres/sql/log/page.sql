-- Rows of a tick in the order of their sequence. $1 lower bound of the tail, $2 first transaction
-- of the tail, $3 and $4 end of the tick (xmax and what was open then), $5 late transactions and
-- $6 whether there are any, $7 rows, $8 bytes, $9 lower bound of late rows. For `started` see
-- snapshot.sql. `is true` keeps the index by transaction out of the tail, which is read in its
-- order from the primary key whatever the statistics say.
with merged as (
    select u.* from (
        (select o.* from onceward.outbox o
         where o.seq > $1::bigint
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
    onceward.micros(p.recorded_at) as recorded_at
from (select pg_current_snapshot() as snapshot) s
left join page p on true
order by p.seq
