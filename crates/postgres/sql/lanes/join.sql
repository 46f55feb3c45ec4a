insert into onceward.members (member, description, lease_ms, subscriptions)
values ($1::text, $2::text, $3::bigint, $4::text[])
returning fence
