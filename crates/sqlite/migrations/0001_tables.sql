-- Works with SQLite 3.31 and later, so that older libraries of other languages can write here too.
-- Moments are integers: microseconds since the Unix epoch, UTC.

-- The one place that says what time it is.
CREATE VIEW onceward_clock (micros) AS
SELECT CAST(strftime('%s', 'now') AS INTEGER) * 1000000
     + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000;

-- The log. The first five columns after seq are enough; everything else has a default.
-- AUTOINCREMENT: a number is never used again, also not after its row was removed.
CREATE TABLE onceward_outbox (
    seq              INTEGER PRIMARY KEY AUTOINCREMENT,
    id               TEXT NOT NULL,
    source           TEXT,
    aggregatetype    TEXT NOT NULL,
    aggregateid      TEXT NOT NULL,
    type             TEXT NOT NULL,
    operationid      TEXT,
    partitionkey     TEXT,
    schemaversion    INTEGER,
    aggregateversion INTEGER,
    occurred_at,
    expires_at,
    priority         INTEGER NOT NULL DEFAULT 0,
    recorded_at      INTEGER NOT NULL DEFAULT (
        CAST(strftime('%s', 'now') AS INTEGER) * 1000000
        + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000
    ),
    headers          TEXT,
    payload          TEXT,
    payload_binary   BLOB,
    CONSTRAINT texts_are_text CHECK (
        typeof(id) = 'text' AND typeof(aggregatetype) = 'text' AND typeof(aggregateid) = 'text'
        AND typeof(type) = 'text' AND typeof(source) IN ('text', 'null')
        AND typeof(operationid) IN ('text', 'null') AND typeof(partitionkey) IN ('text', 'null')
    ),
    CONSTRAINT texts_are_not_empty CHECK (
        id <> '' AND aggregatetype <> '' AND aggregateid <> '' AND type <> ''
        AND coalesce(source <> '', 1) AND coalesce(operationid <> '', 1)
        AND coalesce(partitionkey <> '', 1)
    ),
    CONSTRAINT numbers_are_integers CHECK (
        typeof(schemaversion) IN ('integer', 'null')
        AND coalesce(schemaversion BETWEEN -2147483648 AND 2147483647, 1)
        AND typeof(aggregateversion) IN ('integer', 'null')
        AND coalesce(aggregateversion >= 0, 1)
        AND typeof(priority) = 'integer' AND priority BETWEEN -32768 AND 32767
        AND typeof(recorded_at) = 'integer'
        AND recorded_at BETWEEN -62135596800000000 AND 253402300799999999
    ),
    -- From the year 1 to the year 9999. SQLite's own functions also understand other texts, and
    -- days such as the 30th of February, which others would not.
    CONSTRAINT moments_are_micros_or_rfc3339 CHECK (
        CASE typeof(occurred_at)
            WHEN 'null' THEN 1
            WHEN 'integer' THEN occurred_at BETWEEN -62135596800000000 AND 253402300799999999
            WHEN 'text' THEN strftime('%s', occurred_at) IS NOT NULL
                AND date(substr(occurred_at, 1, 10)) IS substr(occurred_at, 1, 10)
                AND time(substr(occurred_at, 12, 8)) IS substr(occurred_at, 12, 8)
            ELSE 0
        END
        AND CASE typeof(expires_at)
            WHEN 'null' THEN 1
            WHEN 'integer' THEN expires_at BETWEEN -62135596800000000 AND 253402300799999999
            WHEN 'text' THEN strftime('%s', expires_at) IS NOT NULL
                AND date(substr(expires_at, 1, 10)) IS substr(expires_at, 1, 10)
                AND time(substr(expires_at, 12, 8)) IS substr(expires_at, 12, 8)
            ELSE 0
        END
    ),
    CONSTRAINT headers_are_a_json_object CHECK (
        headers IS NULL OR (json_valid(headers) AND json_type(headers) = 'object')
    ),
    CONSTRAINT exactly_one_payload CHECK ((payload IS NULL) <> (payload_binary IS NULL)),
    CONSTRAINT payload_is_json CHECK (
        payload IS NULL OR (typeof(payload) = 'text' AND json_valid(payload))
    ),
    CONSTRAINT payload_binary_is_a_blob CHECK (typeof(payload_binary) IN ('blob', 'null'))
);

CREATE INDEX onceward_outbox_operation ON onceward_outbox (coalesce(operationid, id));

-- A number at or below one given out before would never be read. sqlite_sequence still holds the
-- value from before the statement.
CREATE TRIGGER onceward_outbox_in_order AFTER INSERT ON onceward_outbox
WHEN new.seq <= coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'onceward_outbox'), 0)
BEGIN
    SELECT RAISE(ABORT, 'onceward_outbox.seq is assigned by the log: leave the column out');
END;

-- What happened, by message id (or by sequence). Rowids follow the order of insertion, which is
-- what pruning goes by.
CREATE TABLE onceward_ledger (
    subscription     TEXT NOT NULL,
    source           TEXT NOT NULL,
    type             TEXT NOT NULL,
    identity         TEXT NOT NULL,
    generation       INTEGER NOT NULL DEFAULT 0,
    recordedtime     INTEGER NOT NULL,
    digest           BLOB,
    ending           TEXT NOT NULL DEFAULT 'done' CHECK (ending IN ('done', 'rejected')),
    result           TEXT,
    aggregateversion INTEGER,
    finished_at      INTEGER NOT NULL DEFAULT (
        CAST(strftime('%s', 'now') AS INTEGER) * 1000000
        + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000
    ),
    CONSTRAINT recordedtime_is_micros_or_rfc3339 CHECK (
        typeof(recordedtime) = 'integer' OR strftime('%s', recordedtime) IS NOT NULL
    ),
    UNIQUE (subscription, source, type, identity, generation)
);

-- A receiver in another language passes recordedtime as it was delivered, in RFC 3339.
CREATE TRIGGER onceward_ledger_recordedtime AFTER INSERT ON onceward_ledger
WHEN typeof(new.recordedtime) <> 'integer'
BEGIN
    UPDATE onceward_ledger
    SET recordedtime = CAST(strftime('%s', new.recordedtime) AS INTEGER) * 1000000
        + CAST(substr(strftime('%f', new.recordedtime), 4) AS INTEGER) * 1000
    WHERE rowid = new.rowid;
END;

-- What happened, by business operation.
CREATE TABLE onceward_operation_ledger (
    subscription     TEXT NOT NULL,
    source           TEXT NOT NULL,
    type             TEXT NOT NULL,
    identity         TEXT NOT NULL,
    generation       INTEGER NOT NULL DEFAULT 0,
    digest           BLOB,
    ending           TEXT NOT NULL DEFAULT 'done' CHECK (ending IN ('done', 'rejected')),
    result           TEXT,
    aggregateversion INTEGER,
    finished_at      INTEGER NOT NULL DEFAULT (
        CAST(strftime('%s', 'now') AS INTEGER) * 1000000
        + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000
    ),
    UNIQUE (subscription, source, type, identity, generation)
);

-- Declared subscriptions. Messages up to start_seq, or recorded before not_before, are not theirs.
CREATE TABLE onceward_subscription (
    subscription  TEXT PRIMARY KEY,
    lanes         INTEGER NOT NULL,
    types         TEXT NOT NULL,
    start_seq     INTEGER NOT NULL,
    not_before    INTEGER,
    registered_at INTEGER NOT NULL
) WITHOUT ROWID;

-- Starts of processes, with their leases.
CREATE TABLE onceward_member (
    fence         INTEGER PRIMARY KEY AUTOINCREMENT,
    member        TEXT NOT NULL UNIQUE,
    description   TEXT NOT NULL,
    subscriptions TEXT NOT NULL,
    lease_ms      INTEGER NOT NULL,
    renewed_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    ended_cleanly INTEGER
);

-- Lanes: owner, and where the subscription stands in them.
CREATE TABLE onceward_lane (
    subscription TEXT NOT NULL,
    lane         INTEGER NOT NULL,
    epoch        INTEGER NOT NULL DEFAULT 0,
    owner        TEXT,
    is_suspect   INTEGER NOT NULL DEFAULT 0,
    position     TEXT NOT NULL,
    position_seq INTEGER NOT NULL,
    PRIMARY KEY (subscription, lane)
) WITHOUT ROWID;

-- Messages that cannot finish now, by reference to the log.
CREATE TABLE onceward_deferral (
    seq          INTEGER NOT NULL,
    subscription TEXT NOT NULL,
    slot         INTEGER NOT NULL,
    key          TEXT NOT NULL,
    kind         TEXT NOT NULL CHECK (kind IN ('retry', 'held', 'running', 'operator')),
    due_at       INTEGER,
    failures     INTEGER NOT NULL,
    deaths       INTEGER NOT NULL,
    waits        INTEGER NOT NULL,
    failure      TEXT,
    first_at     INTEGER NOT NULL,
    PRIMARY KEY (seq, subscription)
) WITHOUT ROWID;

CREATE INDEX onceward_deferral_key ON onceward_deferral (subscription, slot, key, seq);

-- Quarantine: cases with a copy of their message.
CREATE TABLE onceward_case (
    case_id           INTEGER PRIMARY KEY AUTOINCREMENT,
    subscription      TEXT NOT NULL,
    state             TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open')),
    holds_key         INTEGER NOT NULL,
    reason            TEXT NOT NULL,
    failure           TEXT NOT NULL,
    failures          INTEGER NOT NULL,
    deaths            INTEGER NOT NULL,
    waits             INTEGER NOT NULL,
    age_ms            INTEGER NOT NULL,
    opened_at         INTEGER NOT NULL,
    first_deferred_at INTEGER,
    slot              INTEGER NOT NULL,
    key               TEXT NOT NULL,
    seq               INTEGER NOT NULL,
    id                TEXT NOT NULL,
    source            TEXT,
    aggregatetype     TEXT NOT NULL,
    aggregateid       TEXT NOT NULL,
    type              TEXT NOT NULL,
    operationid       TEXT,
    partitionkey      TEXT,
    schemaversion     INTEGER,
    aggregateversion  INTEGER,
    occurred_at       INTEGER,
    expires_at        INTEGER,
    priority          INTEGER NOT NULL,
    recorded_at       INTEGER NOT NULL,
    headers           TEXT,
    payload           TEXT,
    payload_binary    BLOB,
    UNIQUE (seq, subscription)
);

CREATE INDEX onceward_case_key ON onceward_case (subscription, slot) WHERE holds_key = 1;

-- Requests that were accepted, with the answer they got.
CREATE TABLE onceward_acceptance (
    caller      TEXT NOT NULL,
    key         TEXT NOT NULL,
    digest      BLOB NOT NULL,
    answer      TEXT,
    accepted_at INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    PRIMARY KEY (caller, key)
);

CREATE INDEX onceward_acceptance_expiry ON onceward_acceptance (expires_at);

-- The source of messages that name none.
CREATE TABLE onceward_meta (
    only   INTEGER PRIMARY KEY CHECK (only = 1),
    source TEXT NOT NULL
);

-- Eras: each time the file was taken into service anew.
CREATE TABLE onceward_era (
    era        INTEGER PRIMARY KEY,
    started_at INTEGER NOT NULL
);

INSERT INTO onceward_era (era, started_at) SELECT 1, micros FROM onceward_clock;

-- The last round of upkeep.
CREATE TABLE onceward_tidy (
    only      INTEGER PRIMARY KEY CHECK (only = 1),
    tidied_at INTEGER NOT NULL,
    report    TEXT NOT NULL
);
