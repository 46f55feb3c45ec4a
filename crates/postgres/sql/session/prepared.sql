-- The name under which the server knows this very statement.
select p.name from pg_catalog.pg_prepared_statements p
where p.statement = pg_catalog.current_query()
order by p.prepare_time desc
limit 1
