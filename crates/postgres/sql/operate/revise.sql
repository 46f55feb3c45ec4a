update onceward.subscriptions set revision = revision + 1 where subscription = $1::text
