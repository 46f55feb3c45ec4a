select pg_catalog.set_config('lock_timeout', $2::bigint::text, true),
    pg_catalog.pg_advisory_xact_lock($1::bigint)
