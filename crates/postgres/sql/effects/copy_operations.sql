COPY onceward.operation_ledger (
    subscription, source, type, identity, generation,
    digest, ending, result, aggregateversion, aggregatetype, aggregateid)
FROM STDIN (FORMAT binary)
