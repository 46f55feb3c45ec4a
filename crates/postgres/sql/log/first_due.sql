-- The first row of a sealed era that an old position has not behind it. $1 and $2 bounds of the
-- era, $3 as in sealed_page.sql, $4 and $5 the position's xmax and open transactions, $6 to $8 the
-- same of the tick it stood in, with its sequence.
select min(o.seq) as seq from onceward.outbox o
where o.seq > $1::bigint
  and o.seq <= $2::bigint
  and not (o.seq <= $3::bigint and o.xid < $4::text::xid8 and o.xid <> all ($5::text::xid8[]))
  and not (o.seq <= least($3::bigint, $8::bigint)
           and o.xid < $6::text::xid8 and o.xid <> all ($7::text::xid8[]))
