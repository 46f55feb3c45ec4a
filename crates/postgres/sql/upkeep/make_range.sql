select onceward.make_range($1::bigint, $2::bigint)
