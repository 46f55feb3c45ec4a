-- Rows of a sealed era in plain order, without those that the old position had behind it. $1 rows
-- up to here are behind, $2 last row of the era, $3 rows above this may carry transaction ids of
-- another cluster, $4 and $5 the old position's xmax and open transactions, $6 rows, $7 bytes.
with merged as (
    select u.* from (
        select o.* from onceward.outbox o
        where o.seq > $1::bigint
          and o.seq <= $2::bigint
          and not (o.seq <= $3::bigint and o.xid < $4::xid8 and o.xid <> all ($5::xid8[]))
        order by o.seq
        limit $6::bigint + 1
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
    p.is_beyond,
    case when p.seq <= $3::bigint then p.xid::text else '9223372036854775807' end as xid, p.seq, p.slot, p.id, coalesce(p.source, (select source from onceward.meta)) as source,
    p.aggregatetype, p.aggregateid, p.type, p.operationid, p.partitionkey,
    p.schemaversion, p.aggregateversion, p.headers::text as headers,
    case when not p.is_beyond then p.payload::text end as payload,
    case when not p.is_beyond then p.payload_binary end as payload_binary,
    timestamptz_send(p.occurred_at) as occurred_at, timestamptz_send(p.expires_at) as expires_at,
    p.priority, timestamptz_send(p.recorded_at) as recorded_at
from fitting p
order by p.seq
