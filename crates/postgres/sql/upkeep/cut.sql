select onceward.cut(onceward.moment($1::bigint) - $2::bigint * interval '1 millisecond') as was_cut
