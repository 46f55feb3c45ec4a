-- The next ones to go out, looked at anew: much may have happened since they were chosen.
select i.seq, i.key, i.id, i.type, i.finding, i.case_id,
    coalesce(o.source, (select source from onceward.meta)) as source,
    coalesce(o.operationid, i.id) as operation, onceward.micros(i.recorded_at) as recorded_at,
    c.reason, o.seq is not null or i.case_id is not null as is_there,
    i.case_id is null and coalesce(c.state in ('open', 'acknowledged', 'corrected'), false) as has_live_case,
    i.case_id is null and i.key in (
        select h.key from onceward.cases h
        where h.subscription = (
            select m.subscription from onceward.campaigns m where m.campaign_id = $1::bigint)
          and h.holds_key and h.state in ('open', 'acknowledged', 'corrected')) as is_behind_case,
    i.case_id is null and coalesce(c.state in ('discarded', 'waived'), false) as is_given_up,
    exists (select from onceward.deferrals d
            where d.subscription = i.subscription and d.seq = i.seq) as is_deferred,
    false as is_in_campaign
from onceward.campaign_items i
left join onceward.outbox o on o.seq = i.seq
left join onceward.cases c on c.subscription = i.subscription and c.seq = i.seq
where i.campaign_id = $1::bigint and i.state = 'planned'
order by i.seq
limit $2::bigint
