-- CROSS JOIN keeps the order of the tables: few keys, each looked up in the index.
WITH wanted (place, subscription, source, type, identity, generation) AS (
VALUES
(?, ?, ?, ?, ?, ?)
)
SELECT wanted.place, ledger.digest, ledger.ending, ledger.result, ledger.aggregateversion
FROM wanted
CROSS JOIN onceward_ledger AS ledger
    ON ledger.subscription = wanted.subscription AND ledger.source = wanted.source
    AND ledger.type = wanted.type AND ledger.identity = wanted.identity
    AND ledger.generation = wanted.generation
