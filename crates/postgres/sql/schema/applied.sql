insert into onceward.migrations (version, name) values ($1::integer, $2::text)
