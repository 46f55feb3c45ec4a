-- Messages that take the place of one that could not be handled. Rows are added and never changed:
-- the case names the one that counts.

CREATE TABLE onceward_correction (
    case_id        INTEGER NOT NULL,
    id             TEXT NOT NULL,
    payload        TEXT,
    payload_binary BLOB,
    corrected_at   INTEGER NOT NULL,
    PRIMARY KEY (case_id, id),
    CHECK ((payload IS NULL) <> (payload_binary IS NULL))
);

ALTER TABLE onceward_case ADD COLUMN corrected_id TEXT;

-- A corrected case waits to be released: it is not over.
DROP INDEX onceward_case_key;
CREATE INDEX onceward_case_key ON onceward_case (subscription, slot)
WHERE holds_key = 1 AND state IN ('open', 'acknowledged', 'corrected');
DROP INDEX onceward_case_live;
CREATE INDEX onceward_case_live ON onceward_case (case_id)
WHERE state IN ('open', 'acknowledged', 'corrected');
