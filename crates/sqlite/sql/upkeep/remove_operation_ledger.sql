-- Of the oldest those past their memory that no message can ask for: none that a position is
-- before, none deferred, none with a case that is live or released.
DELETE FROM onceward_operation_ledger
WHERE rowid IN (
    SELECT l.id FROM (
        SELECT rowid AS id, type, identity, finished_at FROM onceward_operation_ledger
        ORDER BY rowid LIMIT ?3 * 5) AS l
    WHERE l.finished_at < coalesce(?2, (SELECT micros FROM onceward_clock)) - ?1 * 1000
      AND NOT EXISTS (
          SELECT 1 FROM onceward_outbox AS o
          WHERE coalesce(o.operationid, o.id) = l.identity AND o.type = l.type
            AND (o.seq > (SELECT min(position_seq) FROM onceward_lane)
                 OR EXISTS (SELECT 1 FROM onceward_deferral AS d WHERE d.seq = o.seq)
                 OR EXISTS (SELECT 1 FROM onceward_campaign_item AS i
                            WHERE i.seq = o.seq AND i.state IN ('planned', 'running') AND i.case_id IS NULL)))
      AND l.identity NOT IN (
          SELECT coalesce(c.operationid, c.id) FROM onceward_case AS c
          WHERE (c.state IN ('open', 'acknowledged', 'corrected') OR EXISTS (
              SELECT 1 FROM onceward_deferral AS d
              WHERE d.seq = c.seq AND d.subscription = c.subscription)))
    LIMIT ?3
)
