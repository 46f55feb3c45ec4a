select exists (select 1 from onceward.outbox where type = any ($1::text[])) as holds
