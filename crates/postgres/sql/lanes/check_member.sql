select 1 as one from onceward.members m
where m.fence = $1::bigint and m.member = $2::text and m.ended_at is null
for share
