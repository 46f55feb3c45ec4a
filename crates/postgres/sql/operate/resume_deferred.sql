update onceward.deferrals
set kind = 'retry', due_at = onceward.moment($3::bigint)
where subscription = $1::text and kind = 'operator' and ($2::text is null or key = $2::text)
