update onceward.subscriptions set types = $2::text[]
where subscription = $1::text and types is distinct from $2::text[]
