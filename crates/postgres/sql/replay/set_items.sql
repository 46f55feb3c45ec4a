-- Where items are now. What goes out has a beginning, everything else an end.
update onceward.campaign_items i
set state = n.state, note = coalesce(n.note, i.note), finding = coalesce(n.finding, i.finding),
    started_at = case when n.state = 'running' then t.now else i.started_at end,
    ended_at = case when n.state <> 'running' then t.now end
from unnest($2::bigint[], $3::text[], $4::text[], $5::text[]) as n (seq, state, finding, note),
    (select onceward.moment($6::bigint) as now) t
where i.campaign_id = $1::bigint and i.seq = n.seq
