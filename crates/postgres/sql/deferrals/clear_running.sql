delete from onceward.deferrals
where subscription = $1::text and seq = any ($2::bigint[]) and kind = 'running'
