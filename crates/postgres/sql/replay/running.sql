-- What went out, with what the records say of it now.
select i.seq, d.kind, c.state, c.reason,
    d.seq is not null and exists (
        select from onceward.cases h
        where h.subscription = i.subscription and h.slot = d.slot and h.holds_key
          and h.state in ('open', 'acknowledged', 'corrected') and h.key = d.key and h.seq <> i.seq
    ) as is_behind_case
from onceward.campaign_items i
left join onceward.deferrals d on d.subscription = i.subscription and d.seq = i.seq
left join onceward.cases c on c.subscription = i.subscription and c.seq = i.seq
where i.campaign_id = $1::bigint and i.state = 'running'
order by i.seq
