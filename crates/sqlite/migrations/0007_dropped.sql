-- Messages that a policy gave up: merged into a later one of their key, or shed under load.
-- Works with SQLite 3.31 and later. A check cannot be changed, so the two tables are made anew; rowids
-- stay, which pruning goes by.

CREATE TABLE onceward_ledger_new (
    subscription     TEXT NOT NULL,
    source           TEXT NOT NULL,
    type             TEXT NOT NULL,
    identity         TEXT NOT NULL,
    generation       INTEGER NOT NULL DEFAULT 0,
    recordedtime     INTEGER NOT NULL,
    digest           BLOB,
    ending           TEXT NOT NULL DEFAULT 'done' CHECK (
        ending IN ('done', 'rejected', 'expired', 'superseded', 'merged', 'shed')),
    result           TEXT,
    aggregateversion INTEGER,
    aggregatetype    TEXT,
    aggregateid      TEXT,
    finished_at      INTEGER NOT NULL DEFAULT (
        CAST(strftime('%s', 'now') AS INTEGER) * 1000000
        + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000
    ),
    CONSTRAINT recordedtime_is_micros_or_rfc3339 CHECK (
        typeof(recordedtime) = 'integer' OR strftime('%s', recordedtime) IS NOT NULL
    ),
    UNIQUE (subscription, source, type, identity, generation)
);
INSERT INTO onceward_ledger_new (
    rowid, subscription, source, type, identity, generation, recordedtime, digest, ending, result,
    aggregateversion, aggregatetype, aggregateid, finished_at
)
SELECT
    rowid, subscription, source, type, identity, generation, recordedtime, digest, ending, result,
    aggregateversion, aggregatetype, aggregateid, finished_at
FROM onceward_ledger
ORDER BY rowid;
DROP TABLE onceward_ledger;
ALTER TABLE onceward_ledger_new RENAME TO onceward_ledger;

-- A receiver in another language passes recordedtime as it was delivered, in RFC 3339.
CREATE TRIGGER onceward_ledger_recordedtime AFTER INSERT ON onceward_ledger
WHEN typeof(new.recordedtime) <> 'integer'
BEGIN
    UPDATE onceward_ledger
    SET recordedtime = CAST(strftime('%s', new.recordedtime) AS INTEGER) * 1000000
        + CAST(substr(strftime('%f', new.recordedtime), 4) AS INTEGER) * 1000
    WHERE rowid = new.rowid;
END;

CREATE TABLE onceward_operation_ledger_new (
    subscription     TEXT NOT NULL,
    source           TEXT NOT NULL,
    type             TEXT NOT NULL,
    identity         TEXT NOT NULL,
    generation       INTEGER NOT NULL DEFAULT 0,
    digest           BLOB,
    ending           TEXT NOT NULL DEFAULT 'done' CHECK (
        ending IN ('done', 'rejected', 'expired', 'superseded', 'merged', 'shed')),
    result           TEXT,
    aggregateversion INTEGER,
    aggregatetype    TEXT,
    aggregateid      TEXT,
    finished_at      INTEGER NOT NULL DEFAULT (
        CAST(strftime('%s', 'now') AS INTEGER) * 1000000
        + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000
    ),
    UNIQUE (subscription, source, type, identity, generation)
);
INSERT INTO onceward_operation_ledger_new (
    rowid, subscription, source, type, identity, generation, digest, ending, result,
    aggregateversion, aggregatetype, aggregateid, finished_at
)
SELECT
    rowid, subscription, source, type, identity, generation, digest, ending, result,
    aggregateversion, aggregatetype, aggregateid, finished_at
FROM onceward_operation_ledger
ORDER BY rowid;
DROP TABLE onceward_operation_ledger;
ALTER TABLE onceward_operation_ledger_new RENAME TO onceward_operation_ledger;

-- Only rows of subscriptions that check versions are in these.
CREATE INDEX onceward_ledger_version
ON onceward_ledger (subscription, aggregateid, aggregatetype, source, generation, aggregateversion)
WHERE aggregateid IS NOT NULL;
CREATE INDEX onceward_operation_ledger_version
ON onceward_operation_ledger (
    subscription, aggregateid, aggregatetype, source, generation, aggregateversion
)
WHERE aggregateid IS NOT NULL;

-- Only rows of messages that were given up are in these, in the order in which they are listed.
CREATE INDEX onceward_ledger_dropped
ON onceward_ledger (subscription, ending, finished_at, source, type, identity, generation)
WHERE ending IN ('expired', 'merged', 'shed');
CREATE INDEX onceward_operation_ledger_dropped
ON onceward_operation_ledger (
    subscription, ending, finished_at, source, type, identity, generation
)
WHERE ending IN ('expired', 'merged', 'shed');
