select i.seq, i.id, i.type, i.key, i.case_id, i.state, i.finding, i.note,
    onceward.micros(i.started_at) as started_at, onceward.micros(i.ended_at) as ended_at
from onceward.campaign_items i
where i.campaign_id = $1::bigint and i.seq > $2::bigint
  and ($3::text[] is null or i.state = any ($3::text[]))
order by i.seq
limit $4::bigint
