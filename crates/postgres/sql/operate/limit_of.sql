select s.concurrency_max from onceward.subscriptions s where s.subscription = $1::text
