-- What ran in these lanes does not run any more: due at once, with a death where $3 says so.
update onceward.deferrals d
set kind = 'retry', due_at = onceward.moment($5::bigint), deaths = d.deaths + $3::bigint
where d.subscription = $1::text
  and d.kind = 'running'
  and d.slot::integer * $4::integer / 1024 = any ($2::integer[])
