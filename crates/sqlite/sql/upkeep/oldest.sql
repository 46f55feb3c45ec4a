-- The oldest row, and whether a position or a deferral keeps it beyond its age.
SELECT
    o.recorded_at,
    o.recorded_at < coalesce(?2, (SELECT micros FROM onceward_clock)) - ?1 * 1000 AS is_old,
    (SELECT l.subscription FROM onceward_lane AS l WHERE l.position_seq < o.seq
        ORDER BY l.position_seq LIMIT 1) AS behind,
    (SELECT d.subscription FROM onceward_deferral AS d WHERE d.seq = o.seq LIMIT 1) AS deferred,
    (SELECT i.campaign_id FROM onceward_campaign_item AS i
     WHERE i.seq = o.seq AND i.state IN ('planned', 'running') AND i.case_id IS NULL LIMIT 1) AS replayed
FROM onceward_outbox AS o
ORDER BY o.seq
LIMIT 1
