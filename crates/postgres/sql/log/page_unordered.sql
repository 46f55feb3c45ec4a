-- As the function onceward.page, where no floor is known: for a sequence with a cache above one,
-- whose numbers say nothing about time, and after a snapshot that gave its floor up. The lowest
-- sequence of the tick is looked up by transaction, in the same snapshot as the rows. Parameters as
-- in page.sql.
with lowest as materialized (
    select min(l.seq) - 1 as seq from (
        -- Not merged with the query around it, which would look for the lowest from the beginning.
        select i.seq from onceward.outbox i where i.xid >= $2::xid8 offset 0) l
    where l.seq > (select era_floor from onceward.meta)
), merged as (
    select u.* from (
        (select o.* from onceward.outbox o
         where o.seq > coalesce((select seq from lowest), $1::bigint)
           and o.seq > $8::bigint
           and o.seq > (select era_floor from onceward.meta)
           and (o.xid >= $2::xid8) is true
           and (o.xid < $3::xid8) is true
           and o.xid <> all ($4::xid8[])
         order by o.seq
         limit $6::bigint + 1)
        union all
        (select o.* from onceward.outbox o
         where cardinality($5::xid8[]) > 0
           and o.xid = any ($5::xid8[])
           and o.seq > $8::bigint
           and o.seq > (select era_floor from onceward.meta)
         order by o.seq
         limit $6::bigint + 1)
    ) u
    order by u.seq
    limit $6::bigint + 1
), weighed as (
    select w.*, sum(w.own_bytes) over by_seq as bytes, lag(w.own_bytes, 1, 0) over by_seq as bytes_last
    from (
        select m.*, coalesce(pg_column_size(m.payload), pg_column_size(m.payload_binary)) as own_bytes
        from merged m) w
    window by_seq as (order by w.seq rows unbounded preceding)
), fitting as (
    select w.*, w.bytes - w.own_bytes >= $7::bigint as is_beyond
    from weighed w
    where w.bytes - w.own_bytes - w.bytes_last < $7::bigint
)
select
    case when coalesce(p.bytes_last, 0) = 0 then s.snapshot::text end as snapshot,
    case when coalesce(p.bytes_last, 0) = 0 then age(pg_snapshot_xmax(s.snapshot)::xid) end as started,
    p.is_beyond,
    p.xid::text as xid, p.seq, p.slot, p.id, coalesce(p.source, (select source from onceward.meta)) as source,
    p.aggregatetype, p.aggregateid, p.type, p.operationid, p.partitionkey,
    p.schemaversion, p.aggregateversion, p.headers::text as headers,
    case when not p.is_beyond then p.payload::text end as payload,
    case when not p.is_beyond then p.payload_binary end as payload_binary,
    timestamptz_send(p.occurred_at) as occurred_at, timestamptz_send(p.expires_at) as expires_at,
    p.priority, timestamptz_send(p.recorded_at) as recorded_at,
    (select seq from lowest) as lowest
from (select pg_current_snapshot() as snapshot) s
left join fitting p on true
order by p.seq
