-- Of the oldest those past their memory whose message cannot come again: no position is before it,
-- it is not deferred, and no case has it that is live or released.
DELETE FROM onceward_ledger
WHERE rowid IN (
    SELECT l.id FROM (
        SELECT rowid AS id, recordedtime FROM onceward_ledger ORDER BY rowid LIMIT ?3 * 5) AS l
    WHERE l.recordedtime < coalesce(?2, (SELECT micros FROM onceward_clock)) - ?1 * 1000
      AND l.recordedtime < coalesce((
          SELECT min(u.recorded_at) FROM (
              SELECT o.recorded_at FROM onceward_outbox AS o
              WHERE o.seq > (SELECT min(position_seq) FROM onceward_lane)
              ORDER BY o.seq LIMIT 1000) AS u), l.recordedtime + 1)
      AND l.recordedtime NOT IN (
          SELECT o.recorded_at FROM onceward_deferral AS d JOIN onceward_outbox AS o ON o.seq = d.seq
          UNION ALL
          SELECT i.recorded_at FROM onceward_campaign_item AS i WHERE i.state IN ('planned', 'running') AND i.case_id IS NULL
          UNION ALL
          SELECT c.recorded_at FROM onceward_case AS c WHERE (c.state IN ('open', 'acknowledged', 'corrected') OR EXISTS (
              SELECT 1 FROM onceward_deferral AS d
              WHERE d.seq = c.seq AND d.subscription = c.subscription)))
    LIMIT ?3
)
