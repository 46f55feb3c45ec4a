-- Why the oldest row of the ledger is kept beyond its memory.
SELECT
    (SELECT n.subscription FROM onceward_lane AS n
     WHERE (SELECT min(u.recorded_at) FROM (
                SELECT o.recorded_at FROM onceward_outbox AS o
                WHERE o.seq > n.position_seq ORDER BY o.seq LIMIT 1000) AS u) <= l.recordedtime
     ORDER BY n.position_seq LIMIT 1) AS behind,
    (SELECT d.subscription FROM onceward_deferral AS d JOIN onceward_outbox AS o ON o.seq = d.seq
     WHERE o.recorded_at = l.recordedtime LIMIT 1) AS deferred,
    (SELECT c.case_id FROM onceward_case AS c
     WHERE c.recorded_at = l.recordedtime
       AND (c.state IN ('open', 'acknowledged', 'corrected') OR EXISTS (
           SELECT 1 FROM onceward_deferral AS d
           WHERE d.seq = c.seq AND d.subscription = c.subscription))
     LIMIT 1) AS cased,
    (SELECT i.campaign_id FROM onceward_campaign_item AS i
     WHERE i.recorded_at = l.recordedtime AND i.state IN ('planned', 'running') AND i.case_id IS NULL
     LIMIT 1) AS replayed
FROM (SELECT recordedtime FROM onceward_ledger ORDER BY rowid LIMIT 1) AS l
WHERE l.recordedtime < coalesce(?2, (SELECT micros FROM onceward_clock)) - ?1 * 1000
