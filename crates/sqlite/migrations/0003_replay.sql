-- Replay campaigns: a frozen selection, and what became of each message of it.
-- Works with SQLite 3.31 and later.

-- What a subscription promises, as it was declared last (JSON).
ALTER TABLE onceward_subscription ADD COLUMN terms TEXT;

CREATE TABLE onceward_campaign (
    campaign_id  INTEGER PRIMARY KEY AUTOINCREMENT,
    subscription TEXT NOT NULL,
    kind         TEXT NOT NULL CHECK (kind IN ('resend', 'rerun')),
    generation   INTEGER NOT NULL,
    state        TEXT NOT NULL CHECK (state IN (
        'planned', 'canary', 'verifying', 'ramping', 'paused', 'stopped', 'done')),
    -- Whether steps are to be made.
    is_active    INTEGER NOT NULL,
    -- Everything about it, as JSON.
    record       TEXT NOT NULL
);
CREATE INDEX onceward_campaign_active ON onceward_campaign (subscription) WHERE is_active = 1;
CREATE INDEX onceward_campaign_subscription ON onceward_campaign (subscription, campaign_id);

CREATE TABLE onceward_campaign_item (
    campaign_id  INTEGER NOT NULL REFERENCES onceward_campaign (campaign_id),
    seq          INTEGER NOT NULL,
    subscription TEXT NOT NULL,
    id           TEXT NOT NULL,
    type         TEXT NOT NULL,
    key          TEXT NOT NULL,
    recorded_at  INTEGER NOT NULL,
    case_id      INTEGER,
    generation   INTEGER NOT NULL,
    state        TEXT NOT NULL CHECK (state IN (
        'planned', 'running', 'done', 'failed', 'refused', 'left')),
    finding      TEXT,
    note         TEXT,
    started_at   INTEGER,
    ended_at     INTEGER,
    PRIMARY KEY (campaign_id, seq)
) WITHOUT ROWID;
-- Two campaigns never have one message.
CREATE UNIQUE INDEX onceward_campaign_item_once ON onceward_campaign_item (subscription, seq)
WHERE state IN ('planned', 'running');
CREATE INDEX onceward_campaign_item_planned ON onceward_campaign_item (campaign_id, seq)
WHERE state = 'planned';
CREATE INDEX onceward_campaign_item_running ON onceward_campaign_item (campaign_id, seq)
WHERE state = 'running';
-- What the log and the ledger have to keep for them.
CREATE INDEX onceward_campaign_item_pins ON onceward_campaign_item (seq)
WHERE state IN ('planned', 'running') AND case_id IS NULL;
-- The generation of a message that was made to run once more.
CREATE INDEX onceward_campaign_item_reruns ON onceward_campaign_item (subscription, seq)
WHERE generation > 0 AND started_at IS NOT NULL;
