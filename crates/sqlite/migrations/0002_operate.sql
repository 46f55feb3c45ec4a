-- What operators do: cases with an owner and a state, pauses, and a log of who did what.
-- Works with SQLite 3.31 and later. A check cannot be changed, so the table of cases is made anew;
-- its numbering goes on.

CREATE TABLE onceward_case_new (
    case_id           INTEGER PRIMARY KEY AUTOINCREMENT,
    subscription      TEXT NOT NULL,
    state             TEXT NOT NULL DEFAULT 'open' CHECK (state IN (
        'open', 'acknowledged', 'corrected', 'replayed', 'discarded', 'waived')),
    owner             TEXT,
    due_at            INTEGER,
    replays           INTEGER NOT NULL DEFAULT 0,
    regressions       INTEGER NOT NULL DEFAULT 0,
    fingerprint       TEXT,
    holds_key         INTEGER NOT NULL,
    reason            TEXT NOT NULL,
    failure           TEXT NOT NULL,
    failures          INTEGER NOT NULL,
    deaths            INTEGER NOT NULL,
    waits             INTEGER NOT NULL,
    age_ms            INTEGER NOT NULL,
    first_opened_at   INTEGER NOT NULL,
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
INSERT INTO sqlite_sequence (name, seq)
SELECT 'onceward_case_new', seq FROM sqlite_sequence WHERE name = 'onceward_case';
INSERT INTO onceward_case_new (
    case_id, subscription, state, holds_key, reason, failure, failures, deaths, waits, age_ms,
    first_opened_at, opened_at, first_deferred_at, slot, key, seq, id, source, aggregatetype,
    aggregateid, type, operationid, partitionkey, schemaversion, aggregateversion, occurred_at,
    expires_at, priority, recorded_at, headers, payload, payload_binary
)
SELECT
    case_id, subscription, state, holds_key, reason, failure, failures, deaths, waits, age_ms,
    opened_at, opened_at, first_deferred_at, slot, key, seq, id, source, aggregatetype,
    aggregateid, type, operationid, partitionkey, schemaversion, aggregateversion, occurred_at,
    expires_at, priority, recorded_at, headers, payload, payload_binary
FROM onceward_case;
DROP TABLE onceward_case;
ALTER TABLE onceward_case_new RENAME TO onceward_case;

CREATE INDEX onceward_case_key ON onceward_case (subscription, slot)
WHERE holds_key = 1 AND state IN ('open', 'acknowledged');
CREATE INDEX onceward_case_live ON onceward_case (case_id)
WHERE state IN ('open', 'acknowledged');
CREATE INDEX onceward_case_fingerprint ON onceward_case (fingerprint);

-- Raised by every action that changes what may run: whoever works on the subscription looks again.
ALTER TABLE onceward_subscription ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;

CREATE TABLE onceward_pause (
    pause_id     INTEGER PRIMARY KEY AUTOINCREMENT,
    subscription TEXT NOT NULL,
    paused_at    INTEGER NOT NULL,
    resumed_at   INTEGER
);
CREATE INDEX onceward_pause_subscription ON onceward_pause (subscription, resumed_at);
CREATE UNIQUE INDEX onceward_pause_open ON onceward_pause (subscription)
WHERE resumed_at IS NULL;

-- Who did what, when, to what, and why. Rows are added and never changed.
CREATE TABLE onceward_audit (
    audit_id     INTEGER PRIMARY KEY AUTOINCREMENT,
    acted_at     INTEGER NOT NULL,
    who          TEXT NOT NULL CHECK (length(CAST(who AS BLOB)) BETWEEN 1 AND 200),
    action       TEXT NOT NULL,
    subscription TEXT NOT NULL,
    case_id      INTEGER,
    why          TEXT CHECK (length(CAST(why AS BLOB)) <= 4000),
    before       TEXT NOT NULL,
    after        TEXT NOT NULL
);
CREATE INDEX onceward_audit_case ON onceward_audit (case_id, audit_id)
WHERE case_id IS NOT NULL;
CREATE INDEX onceward_audit_subscription ON onceward_audit (subscription, audit_id);

CREATE TRIGGER onceward_audit_unchanged BEFORE UPDATE ON onceward_audit
BEGIN
    SELECT RAISE(ABORT, 'rows of onceward_audit are added and never changed');
END;
CREATE TRIGGER onceward_audit_kept BEFORE DELETE ON onceward_audit
BEGIN
    SELECT RAISE(ABORT, 'rows of onceward_audit are added and never removed');
END;
