update onceward.subscriptions
set concurrency_max = $2::integer, rate_per_second = $3::bigint, rate_burst = $4::bigint
where subscription = $1::text
