-- With $7 to $10 only versions of one aggregate, up to one of them.
select d.kind,
    case when d.due_at is not null
        then greatest(0, ceil(extract(epoch from d.due_at - t.now) * 1000))::bigint
    end as due_in_ms,
    d.failures, d.deaths, d.waits, d.failure,
    greatest(0, floor(extract(epoch from t.now - d.first_deferred_at
        - onceward.paused_between(d.subscription, d.first_deferred_at, t.now)) * 1000))::bigint
        as age_ms,
    k.id as corrected_id, k.payload::text as corrected_payload,
    k.payload_binary as corrected_payload_binary,
    coalesce((
        select max(i.generation) from onceward.campaign_items i
        where i.subscription = $1::text and i.seq = d.seq
          and i.generation > 0 and i.started_at is not null), 0) as generation,
    p.xid::text as xid, p.seq, p.slot, p.id, coalesce(p.source, (select source from onceward.meta)) as source,
    p.aggregatetype, p.aggregateid, p.type, p.operationid, p.partitionkey,
    p.schemaversion, p.aggregateversion, p.headers::text as headers, p.payload::text as payload,
    p.payload_binary, timestamptz_send(p.occurred_at) as occurred_at,
    timestamptz_send(p.expires_at) as expires_at, p.priority,
    timestamptz_send(p.recorded_at) as recorded_at
from (select onceward.moment($6::bigint) as now) t
cross join lateral (
    select * from onceward.deferrals d
    where d.subscription = $1::text
      and d.slot = $2::smallint
      and pg_catalog.hashtextextended(d.key collate "C", 0)
          = pg_catalog.hashtextextended($3::text collate "C", 0)
      and d.key = $3::text
      and d.seq > $4::bigint
      and ($7::bigint is null or exists (
          select 1 from (
              select o.source, o.aggregatetype, o.aggregateid, o.aggregateversion
              from onceward.outbox o where o.seq = d.seq
              union all
              select c.source, c.aggregatetype, c.aggregateid, c.aggregateversion
              from onceward.cases c where c.subscription = d.subscription and c.seq = d.seq
              limit 1) v
          where v.aggregateversion <= $7::bigint
            and v.aggregatetype = $8::text
            and v.aggregateid = $9::text
            and coalesce(v.source, (select source from onceward.meta)) = $10::text))
    order by d.seq
    limit $5::bigint) d
cross join lateral (
    select o.xid, o.seq, o.slot, o.id, o.source, o.aggregatetype, o.aggregateid, o.type,
        o.operationid, o.partitionkey, o.schemaversion, o.aggregateversion, o.headers, o.payload,
        o.payload_binary, o.occurred_at, o.expires_at, o.priority, o.recorded_at
    from onceward.outbox o where o.seq = d.seq
    union all
    -- One that was released from its case, whose row the log may have forgotten.
    select c.xid, c.seq, c.slot, c.id, c.source, c.aggregatetype, c.aggregateid, c.type,
        c.operationid, c.partitionkey, c.schemaversion, c.aggregateversion, c.headers, c.payload,
        c.payload_binary, c.occurred_at, c.expires_at, c.priority, c.recorded_at
    from onceward.cases c where c.subscription = d.subscription and c.seq = d.seq
    limit 1) p
-- What has taken its place, where it was corrected.
left join onceward.cases c on c.subscription = d.subscription and c.seq = d.seq
left join onceward.corrections k on k.case_id = c.case_id and k.id = c.corrected_id
order by d.seq
