update onceward.members
set ended_at = onceward.moment($2::bigint), ended_cleanly = true
where fence = $1::bigint and ended_at is null
