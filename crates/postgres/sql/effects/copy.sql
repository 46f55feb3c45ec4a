COPY onceward.ledger (
    subscription, source, type, identity, generation, recordedtime,
    digest, ending, result, aggregateversion, aggregatetype, aggregateid)
FROM STDIN (FORMAT binary)
