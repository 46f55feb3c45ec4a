update onceward.deferrals
set kind = 'held', due_at = onceward.moment($3::bigint)
where subscription = $1::text and seq = any ($2::bigint[]) and kind = 'running'
