-- The oldest rows that no position and no deferral needs, as far as they are old enough. Cases
-- carry a copy of their message.
DELETE FROM onceward_outbox
WHERE recorded_at < coalesce(?2, (SELECT micros FROM onceward_clock)) - ?1 * 1000
  AND seq IN (
      SELECT o.seq FROM onceward_outbox AS o
      WHERE o.seq <= coalesce((SELECT min(position_seq) FROM onceward_lane), o.seq)
        AND NOT EXISTS (SELECT 1 FROM onceward_deferral AS d WHERE d.seq = o.seq)
      ORDER BY o.seq
      LIMIT ?3
  )
