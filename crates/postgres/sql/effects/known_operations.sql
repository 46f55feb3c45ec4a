select * from onceward.known_operations($1::text, $2::text[], $3::text[], $4::text[], $5::integer[])
