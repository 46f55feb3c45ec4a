select onceward.close_ranges(onceward.moment($1::bigint))
