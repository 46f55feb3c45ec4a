select onceward.make_day($1::text::date)
