-- Rows that every lane of the subscription has come past: $8 and $9 are the end of the least
-- snapshot and what was open then.
select o.seq, coalesce(o.partitionkey, o.aggregateid) as key, o.id,
    coalesce(o.source, (select source from onceward.meta)) as source, o.type,
    coalesce(o.operationid, o.id) as operation, onceward.micros(o.recorded_at) as recorded_at,
    null::bigint as case_id, null::text as reason, true as is_there,
    exists (select from onceward.cases c
            where c.subscription = $1::text and c.seq = o.seq
              and c.state in ('open', 'acknowledged', 'corrected')) as has_live_case,
    coalesce(o.partitionkey, o.aggregateid) in (
        select h.key from onceward.cases h
        where h.subscription = $1::text and h.holds_key
          and h.state in ('open', 'acknowledged', 'corrected')) as is_behind_case,
    exists (select from onceward.cases c
            where c.subscription = $1::text and c.seq = o.seq
              and c.state in ('discarded', 'waived')) as is_given_up,
    exists (select from onceward.deferrals d
            where d.subscription = $1::text and d.seq = o.seq) as is_deferred,
    exists (select from onceward.campaign_items i
            where i.subscription = $1::text and i.seq = o.seq
              and i.state in ('planned', 'running')) as is_in_campaign
from onceward.outbox o
where o.seq > $2::bigint
  and o.seq > (select era_floor from onceward.meta)
  and o.type = any ($3::text[])
  and ($4::text is null or coalesce(o.partitionkey, o.aggregateid) = $4::text)
  and ($5::bigint is null
       or o.recorded_at >= 'epoch'::timestamptz + $5::bigint * interval '1 microsecond')
  and ($6::bigint is null
       or o.recorded_at < 'epoch'::timestamptz + $6::bigint * interval '1 microsecond')
  and (o.xid < $8::text::xid8) is true
  and o.xid <> all ($9::text::xid8[])
order by o.seq
limit $7::bigint
