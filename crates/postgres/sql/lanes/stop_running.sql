-- What ran in these lanes when their owner died: due at once, with a death. What ran when its owner
-- left stays as it is, so that the next one knows that it may have happened.
update onceward.deferrals d
set kind = 'retry', due_at = onceward.moment($4::bigint), deaths = d.deaths + 1
where d.subscription = $1::text
  and d.kind = 'running'
  and d.slot::integer * $3::integer / 1024 = any ($2::integer[])
