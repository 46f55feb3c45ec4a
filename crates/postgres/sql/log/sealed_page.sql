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
    where w.place <= $6::bigint and (w.place = 1 or w.bytes_before < $7::bigint)
)
select
    case when coalesce(p.place, 1) = 1 then s.snapshot::text end as snapshot,
    case when coalesce(p.place, 1) = 1 then age(pg_snapshot_xmax(s.snapshot)::xid) end as started,
    p.candidates,
    case when p.seq <= $3::bigint then p.xid::text else '9223372036854775807' end as xid, p.seq, p.slot, p.id, coalesce(p.source, (select source from onceward.meta)) as source,
    p.aggregatetype, p.aggregateid, p.type, p.operationid, p.partitionkey,
    p.schemaversion, p.aggregateversion, p.headers::text as headers, p.payload::text as payload,
    p.payload_binary, onceward.micros(p.occurred_at) as occurred_at,
    onceward.micros(p.expires_at) as expires_at, p.priority,
    onceward.micros(p.recorded_at) as recorded_at
from (select pg_current_snapshot() as snapshot) s
left join page p on true
order by p.seq
