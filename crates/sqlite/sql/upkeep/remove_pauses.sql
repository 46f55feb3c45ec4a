-- Pauses that ended by themselves long ago. One that counts for the age of a message which is still
-- deferred stays.
DELETE FROM onceward_pause
WHERE pause_id IN (
    SELECT p.pause_id FROM onceward_pause AS p
    WHERE p.because IS NOT NULL
      AND p.resumed_at < coalesce(?2, (SELECT micros FROM onceward_clock)) - ?1 * 1000
      AND NOT EXISTS (
          SELECT 1 FROM onceward_deferral AS d
          WHERE d.subscription = p.subscription AND d.first_at < p.resumed_at
      )
    ORDER BY p.pause_id
    LIMIT ?3
)
