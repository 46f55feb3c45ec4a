insert into onceward.subscriptions (subscription, lanes, types, terms)
values ($1::text, $2::integer, $3::text[], $4::text)
