INSERT INTO onceward_operation_ledger (
    subscription, source, type, identity, generation, digest, ending, result,
    aggregateversion, aggregatetype, aggregateid, finished_at
)
VALUES
(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, coalesce(?, (SELECT micros FROM onceward_clock)))
ON CONFLICT (subscription, source, type, identity, generation) DO NOTHING
