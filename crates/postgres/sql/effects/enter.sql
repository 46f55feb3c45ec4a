select onceward.enter($1::bigint, $2::bigint)
