select c.seq, c.key, c.id, coalesce(c.source, (select source from onceward.meta)) as source, c.type,
    coalesce(c.operationid, c.id) as operation, onceward.micros(c.recorded_at) as recorded_at,
    c.case_id, c.reason, true as is_there, false as has_live_case, false as is_behind_case,
    false as is_given_up,
    exists (select from onceward.deferrals d
            where d.subscription = c.subscription and d.seq = c.seq) as is_deferred,
    exists (select from onceward.campaign_items i
            where i.subscription = c.subscription and i.seq = c.seq
              and i.state in ('planned', 'running')) as is_in_campaign
from onceward.cases c
where c.subscription = $1::text and c.state in ('open', 'acknowledged', 'corrected')
  and c.seq > $2::bigint
  and ($3::bigint[] is null or c.case_id = any ($3::bigint[]))
  and ($4::text is null or c.fingerprint = $4::text)
  and ($5::text is null or c.owner = $5::text)
  and ($6::text is null
       or (pg_catalog.hashtextextended(c.type collate "C", 0)
               = pg_catalog.hashtextextended($6::text collate "C", 0)
           and c.type = $6::text))
  and ($7::text is null
       or (pg_catalog.hashtextextended(coalesce(c.partitionkey, c.aggregateid) collate "C", 0)
               = pg_catalog.hashtextextended($7::text collate "C", 0)
           and coalesce(c.partitionkey, c.aggregateid) = $7::text))
  and ($8::bigint is null
       or c.opened_at >= 'epoch'::timestamptz + $8::bigint * interval '1 microsecond')
  and ($9::bigint is null
       or c.opened_at < 'epoch'::timestamptz + $9::bigint * interval '1 microsecond')
order by c.seq
limit $10::bigint
