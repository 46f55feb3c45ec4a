-- $1 lower bound of the tail, $2 first transaction of the tail, $3 and $4 end of the tick (xmax and
-- what was open then), $5 late transactions, $6 rows, $7 bytes, $8 lower bound of late rows.
select * from onceward.page(
    $1::bigint, $2::xid8, $3::xid8, $4::xid8[], $5::xid8[], $6::bigint, $7::bigint, $8::bigint)
