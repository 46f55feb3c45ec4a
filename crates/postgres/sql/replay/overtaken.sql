-- The last message of each key that is done, among so many rows of the log from the first one on.
-- $5 and $6: the end of the least snapshot of the subscription and what was open then.
with later as (
    select o.seq, o.xid, o.type, coalesce(o.partitionkey, o.aggregateid) as key
    from onceward.outbox o
    where o.seq > $2::bigint and o.seq > (select era_floor from onceward.meta)
    order by o.seq
    limit $7::bigint
), done as (
    select l.key, max(l.seq) as seq
    from later l
    where l.key = any ($3::text[]) and l.type = any ($4::text[])
      and l.xid < $5::text::xid8 and l.xid <> all ($6::text::xid8[])
      and not exists (select from onceward.deferrals d
                      where d.subscription = $1::text and d.seq = l.seq)
      and not exists (select from onceward.cases c
                      where c.subscription = $1::text and c.seq = l.seq and c.state <> 'replayed')
    group by l.key
)
select d.key, d.seq, null::bigint as seen_to from done d
union all
select null, null, case when count(*) = $7::bigint then max(l.seq) end from later l
