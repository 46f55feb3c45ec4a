update onceward.pauses
set resumed_at = onceward.moment($2::bigint)
where subscription = $1::text and resumed_at is null
