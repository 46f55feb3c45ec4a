-- What waits behind one position in some lanes: $2 to $4 the position's xmax, open transactions
-- and lower bound; $5 to $7 xmax, open transactions and sequence of the tick it stands in; $15
-- whether there may be late rows; $16 the attribute that names the tenant; $17 up to when those are
-- recorded that are counted apart. Both the rows that count and those looked at are bounded.
select w.type, coalesce(w.tenant, '') as tenant, count(*) as waiting,
    onceward.micros(min(w.recorded_at)) as oldest_at,
    count(*) filter (
        where w.recorded_at <= 'epoch'::timestamptz + $17::bigint * interval '1 microsecond') as before,
    coalesce(max(w.place) >= $12::bigint, false) as looked_at_all
from (
    select n.type, n.headers ->> $16::text as tenant, n.recorded_at, n.place from (
        select o.*, row_number() over () as place from (
            (select t.* from onceward.outbox t
             where t.seq > $4::bigint and t.seq <= $13::bigint
               and (not $15::boolean or t.seq > (select era_floor from onceward.meta))
               and not (t.xid < $2::text::xid8 and t.xid <> all ($3::text::xid8[]))
             limit $12::bigint)
            union all
            (select l.* from onceward.outbox l
             where $15::boolean and l.xid = any ($3::text::xid8[]) and l.seq <= $4::bigint
               and l.seq > (select era_floor from onceward.meta)
             limit $12::bigint)
        ) o
        where not (o.seq <= $7::bigint
                   and o.xid < $5::text::xid8 and o.xid <> all ($6::text::xid8[]))
    ) n
    where n.type = any ($8::text[])
      and n.slot::integer * $9::integer / 1024 = any ($10::integer[])
      and ($14::bigint is null
           or n.recorded_at >= 'epoch'::timestamptz + $14::bigint * interval '1 microsecond')
      and not exists (select 1 from onceward.deferrals d
                      where d.subscription = $1::text and d.seq = n.seq)
      and not exists (select 1 from onceward.cases c
                      where c.subscription = $1::text and c.seq = n.seq)
    limit $11::bigint) w
group by w.type, w.tenant
