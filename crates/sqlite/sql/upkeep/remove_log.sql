-- The oldest rows that no position and no deferral needs, as far as they are old enough. Cases
-- carry a copy of their message.
DELETE FROM onceward_outbox
WHERE recorded_at < coalesce(?2, (SELECT micros FROM onceward_clock)) - ?1 * 1000
  AND seq IN (
      SELECT o.seq FROM onceward_outbox AS o
      WHERE o.seq <= coalesce((SELECT min(position_seq) FROM onceward_lane), o.seq)
        AND NOT EXISTS (SELECT 1 FROM onceward_deferral AS d WHERE d.seq = o.seq)
        AND NOT EXISTS (SELECT 1 FROM onceward_campaign_item AS i
                        WHERE i.seq = o.seq AND i.state IN ('planned', 'running') AND i.case_id IS NULL)
      ORDER BY o.seq
      LIMIT ?3
  )
