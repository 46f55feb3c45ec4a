-- A message of the log as a retry that is due, with a budget of its own. The key is the
-- subscription's own, which the item has.
INSERT INTO onceward_deferral (
    subscription, seq, slot, key, kind, due_at, failures, deaths, waits, failure, first_at
)
SELECT i.subscription, i.seq, ?3, i.key, 'retry', t.now, 0, 0, 0, ?4, t.now
FROM onceward_campaign_item AS i,
    (SELECT coalesce(?5, (SELECT micros FROM onceward_clock)) AS now) AS t
WHERE i.campaign_id = ?1 AND i.seq = ?2
