-- Of the oldest those that no message can ask for: one that some position has not come past ($4 and
-- $5 are the end of the least snapshot and what was open then), a deferred one, one with a live or a released case.
delete from onceward.operation_ledger l
using (
    select o.subscription, o.source, o.type, o.identity, o.generation
    from (
        select e.subscription, e.source, e.type, e.identity, e.generation, e.finished_at
        from onceward.operation_ledger e
        where e.finished_at < onceward.moment($1::bigint) - $2::bigint * interval '1 millisecond'
        order by e.finished_at
        limit $3::bigint * 5
        for update skip locked) o
    where not exists (
        select 1 from onceward.outbox m
        where pg_catalog.hashtextextended(coalesce(m.operationid, m.id) collate "C", 0)
                = pg_catalog.hashtextextended(o.identity collate "C", 0)
          and coalesce(m.operationid, m.id) = o.identity
          and m.type = o.type
          and (m.xid >= $4::text::xid8 or m.xid = any ($5::text::xid8[])
               or exists (select 1 from onceward.deferrals d where d.seq = m.seq)
               or exists (select 1 from onceward.campaign_items i
                          where i.seq = m.seq and i.state in ('planned', 'running')
                            and i.case_id is null)))
      and not exists (
        select 1 from onceward.cases c
        where pg_catalog.hashtextextended(coalesce(c.operationid, c.id) collate "C", 0)
                = pg_catalog.hashtextextended(o.identity collate "C", 0)
          and coalesce(c.operationid, c.id) = o.identity
          and c.type = o.type
          and (c.state in ('open', 'acknowledged', 'corrected')
               or exists (select 1 from onceward.deferrals d
                          where d.subscription = c.subscription and d.seq = c.seq)))
    order by o.finished_at
    limit $3::bigint) old
where l.subscription = old.subscription and l.source = old.source and l.type = old.type
  and l.identity = old.identity and l.generation = old.generation
