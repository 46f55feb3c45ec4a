-- Whole days that are older than the memory; the table for everything before the first day goes
-- with the first of them.
with days as (
    select c.relname, to_date(substr(c.relname, 8), 'YYYYMMDD') as day
    from pg_catalog.pg_inherits i
    join pg_catalog.pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'onceward.ledger'::regclass and c.relname ~ '^ledger_\d{8}$'
), old as (
    select relname, day from days
    where (day + 1)::timestamp at time zone 'UTC'
        <= onceward.moment($1::bigint) - $2::bigint * interval '1 millisecond'
)
select relname::text as leaf from (
    select 'ledger_early' as relname, '-infinity'::date as day
    where exists (select 1 from old) and to_regclass('onceward.ledger_early') is not null
    union all
    select relname, day from old) o
order by day
limit $3::bigint
