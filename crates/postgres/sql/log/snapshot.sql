select pg_current_snapshot()::text as snapshot
