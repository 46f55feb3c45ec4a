-- $6 and $7: when the first and the last of them were recorded.
select * from onceward.known(
    $1::text, $2::text[], $3::text[], $4::text[], $5::integer[], $6::bigint, $7::bigint)
