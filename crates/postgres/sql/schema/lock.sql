-- For the length of the transaction only: works through a pooler, and dies with its process.
select pg_catalog.pg_advisory_xact_lock(8029464471091019776)
