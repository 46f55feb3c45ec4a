update onceward.ranges set emptied_at = onceward.moment($2::bigint)
where leaf = $1::text
  and not exists (
    select 1 from onceward.deferrals d where d.seq >= ranges.first and d.seq < ranges.next)
  and not exists (
    select 1 from onceward.campaign_items i
    where i.seq >= ranges.first and i.seq < ranges.next
      and i.state in ('planned', 'running') and i.case_id is null)
