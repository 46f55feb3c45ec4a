select lanes from onceward.subscriptions where subscription = $1::text
