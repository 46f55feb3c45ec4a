update onceward.subscriptions set concurrency_max = $2::integer where subscription = $1::text
