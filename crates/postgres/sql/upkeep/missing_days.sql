-- Days without a table, from the day after the newest one that the memory still reaches.
select to_char(d, 'YYYY-MM-DD') as day
from generate_series(
    (greatest(
        (select max(to_date(substr(c.relname, 8), 'YYYYMMDD'))
         from pg_catalog.pg_inherits i
         join pg_catalog.pg_class c on c.oid = i.inhrelid
         where i.inhparent = 'onceward.ledger'::regclass and c.relname ~ '^ledger_\d{8}$') + 1,
        ((onceward.moment($1::bigint) - $2::bigint * interval '1 millisecond') at time zone 'UTC')::date
    ))::timestamp,
    ((onceward.moment($1::bigint) at time zone 'UTC')::date + 45)::timestamp,
    interval '1 day') d
limit $3::bigint
