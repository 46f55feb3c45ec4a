-- Whole days that are older than the memory, and what still needs each: a message that some
-- position has not come past ($4 and $5 are the end of the least snapshot and what was open then),
-- a deferral, a live or a released case. The table for everything before the first day goes like that day.
-- `unread` starts a day early: a transaction may have been open for long before its first write.
with days as (
    select c.relname, to_date(substr(c.relname, 8), 'YYYYMMDD') as day
    from pg_catalog.pg_inherits i
    join pg_catalog.pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'onceward.ledger'::regclass and c.relname ~ '^ledger_\d{8}$'
), old as (
    select relname, day, day + 1 as next from days
    where (day + 1)::timestamp at time zone 'UTC'
        <= onceward.moment($1::bigint) - $2::bigint * interval '1 millisecond'
), leaves as (
    select relname, day, next from old
    union all
    select 'ledger_early', '-infinity', (select min(day) from days)
    where exists (select 1 from old) and to_regclass('onceward.ledger_early') is not null
), unread as (
    select (min(u.recorded_at) at time zone 'UTC')::date - 1 as since
    from (
        (select o.recorded_at from onceward.outbox o
         where exists (select 1 from old) and o.xid >= $4::text::xid8
         order by o.xid, o.seq limit 1000)
        union all
        (select o.recorded_at from onceward.outbox o
         where exists (select 1 from old) and o.xid = any ($5::text::xid8[])
         order by o.xid, o.seq limit 1000)
        union all
        -- Transactions of a sealed era have no place in the order of these.
        (select o.recorded_at from onceward.outbox o
         where exists (select 1 from old) and $4::text = '0'
         order by o.seq limit 1000)
    ) u
), kept as (
    select (o.recorded_at at time zone 'UTC')::date as day,
        'a deferred message of subscription ' || min(d.subscription) as reason
    from onceward.deferrals d
    join onceward.outbox o on o.seq = d.seq
    where exists (select 1 from old)
    group by 1
    union all
    select (i.recorded_at at time zone 'UTC')::date, 'replay campaign ' || min(i.campaign_id)
    from onceward.campaign_items i
    where exists (select 1 from old)
      and i.state in ('planned', 'running') and i.case_id is null
    group by 1
    union all
    select (c.recorded_at at time zone 'UTC')::date, 'case ' || min(c.case_id)
    from onceward.cases c
    where exists (select 1 from old)
      and (c.state in ('open', 'acknowledged', 'corrected')
           -- Released, it may run although the log has forgotten its row.
           or exists (select 1 from onceward.deferrals d
                      where d.subscription = c.subscription and d.seq = c.seq))
    group by 1
), held as (
    select l.relname, l.day, case
        when u.since < l.next then 'subscription ' || $6::text || ' has not come past it'
        else (select k.reason from kept k where k.day >= l.day and k.day < l.next limit 1)
    end as held_by
    from leaves l, unread u
)
select h.relname::text as leaf, h.held_by
from held h
order by h.held_by is not null, h.day
limit $3::bigint + 1
