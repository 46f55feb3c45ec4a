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

-- What a list is asked for, each with the numbers by which it is paged.
DROP INDEX onceward_case_fingerprint;
CREATE INDEX onceward_case_cause ON onceward_case (fingerprint, state, case_id);
CREATE INDEX onceward_case_cause_last ON onceward_case (fingerprint, opened_at);
CREATE INDEX onceward_case_subscription ON onceward_case (subscription, state, case_id);
CREATE INDEX onceward_case_state ON onceward_case (state, case_id);
CREATE INDEX onceward_case_owner ON onceward_case (owner, state, case_id) WHERE owner IS NOT NULL;
CREATE INDEX onceward_case_type ON onceward_case (type, state, case_id);
CREATE INDEX onceward_case_of_key ON onceward_case (coalesce(partitionkey, aggregateid), case_id);
CREATE INDEX onceward_case_opened
ON onceward_case (opened_at, case_id, state, subscription);

-- How many cases each cause has.
CREATE TABLE onceward_case_tally (
    fingerprint TEXT PRIMARY KEY NOT NULL,
    live        INTEGER NOT NULL,
    total       INTEGER NOT NULL
);

CREATE TRIGGER onceward_case_opened_counts AFTER INSERT ON onceward_case
WHEN new.fingerprint IS NOT NULL
BEGIN
    INSERT INTO onceward_case_tally (fingerprint, live, total)
    VALUES (new.fingerprint, new.state IN ('open', 'acknowledged', 'corrected'), 1)
    ON CONFLICT (fingerprint) DO UPDATE
    SET live = live + excluded.live, total = total + 1;
END;
CREATE TRIGGER onceward_case_gone_counts AFTER DELETE ON onceward_case
WHEN old.fingerprint IS NOT NULL
BEGIN
    UPDATE onceward_case_tally
    SET live = live - (old.state IN ('open', 'acknowledged', 'corrected')), total = total - 1
    WHERE fingerprint = old.fingerprint;
    DELETE FROM onceward_case_tally WHERE fingerprint = old.fingerprint AND total = 0;
END;
CREATE TRIGGER onceward_case_moved_counts AFTER UPDATE OF state, fingerprint ON onceward_case
WHEN old.fingerprint IS NOT new.fingerprint
  OR (old.state IN ('open', 'acknowledged', 'corrected'))
     <> (new.state IN ('open', 'acknowledged', 'corrected'))
BEGIN
    UPDATE onceward_case_tally
    SET live = live - (old.state IN ('open', 'acknowledged', 'corrected')), total = total - 1
    WHERE fingerprint = old.fingerprint;
    INSERT INTO onceward_case_tally (fingerprint, live, total)
    SELECT new.fingerprint, new.state IN ('open', 'acknowledged', 'corrected'), 1
    WHERE new.fingerprint IS NOT NULL
    ON CONFLICT (fingerprint) DO UPDATE
    SET live = live + excluded.live, total = total + 1;
    DELETE FROM onceward_case_tally WHERE fingerprint = old.fingerprint AND total = 0;
END;

INSERT INTO onceward_case_tally (fingerprint, live, total)
SELECT fingerprint, sum(state IN ('open', 'acknowledged', 'corrected')), count(*)
FROM onceward_case
WHERE fingerprint IS NOT NULL
GROUP BY fingerprint;

-- How much may run at once, where an operator says that it be less than declared.
ALTER TABLE onceward_subscription ADD COLUMN concurrency_max INTEGER
    CHECK (concurrency_max BETWEEN 1 AND 65535);
