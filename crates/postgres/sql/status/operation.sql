-- Also the copies in cases, whose rows the log may have forgotten.
select o.seq, o.xid::text as xid, o.slot, o.id, coalesce(o.source, (select source from onceward.meta)) as source,
    o.type, coalesce(o.operationid, o.id) as operation, o.aggregateid,
    onceward.micros(o.recorded_at) as recorded_at, o.headers
from (
    select p.seq, p.xid, p.slot, p.id, p.source, p.type, p.operationid, p.aggregateid, p.recorded_at,
        p.headers::text as headers
    from onceward.outbox p
    where pg_catalog.hashtextextended(coalesce(p.operationid, p.id) collate "C", 0)
          = pg_catalog.hashtextextended($1::text collate "C", 0)
      and coalesce(p.operationid, p.id) = $1::text
    union
    select p.seq, p.xid, p.slot, p.id, nullif(p.source, (select source from onceward.meta)),
        p.type, p.operationid, p.aggregateid, p.recorded_at, p.headers::text
    from onceward.cases p
    where pg_catalog.hashtextextended(coalesce(p.operationid, p.id) collate "C", 0)
          = pg_catalog.hashtextextended($1::text collate "C", 0)
      and coalesce(p.operationid, p.id) = $1::text
      and not exists (select 1 from onceward.outbox o where o.seq = p.seq)
) o
order by o.seq
limit $2::bigint
