insert into onceward.subscriptions (subscription, lanes, types)
values ($1::text, $2::integer, $3::text[])
