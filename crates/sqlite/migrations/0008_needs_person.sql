-- What stands still may do so because the other side needs a person. A check cannot be changed, so
-- the table is made anew.

CREATE TABLE onceward_pause_new (
    pause_id     INTEGER PRIMARY KEY AUTOINCREMENT,
    subscription TEXT NOT NULL,
    paused_at    INTEGER NOT NULL,
    resumed_at   INTEGER,
    because      TEXT CHECK (because IN ('breaker', 'rate-window', 'person')),
    until_at     INTEGER
);
INSERT INTO onceward_pause_new (
    pause_id, subscription, paused_at, resumed_at, because, until_at
)
SELECT pause_id, subscription, paused_at, resumed_at, because, until_at FROM onceward_pause;
DROP TABLE onceward_pause;
ALTER TABLE onceward_pause_new RENAME TO onceward_pause;
CREATE INDEX onceward_pause_subscription ON onceward_pause (subscription, resumed_at);
CREATE UNIQUE INDEX onceward_pause_open ON onceward_pause (subscription)
WHERE resumed_at IS NULL;
