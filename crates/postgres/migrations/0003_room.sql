-- Room for a fresh database: eight ranges of the log, and the days of the ledger until well past
-- the forty for which maintenance may be away. Whatever is older than today has one table.
select onceward.make_range(n * 68719476736, (n + 1) * 68719476736) from generate_series(0, 7) n;

do $$
declare
    today date := (now() at time zone 'UTC')::date;
begin
    execute format('create table onceward.ledger_early partition of onceward.ledger
        for values from (minvalue) to (%L)', (today - 1)::timestamp at time zone 'UTC');
    for i in -1..45 loop
        perform onceward.make_day(today + i);
    end loop;
end
$$;
