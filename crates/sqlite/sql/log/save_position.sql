-- Only lanes that the member still owns in the epoch in which it took them.
UPDATE onceward_lane
SET position = ?4, position_seq = ?5
WHERE subscription = ?1 AND owner = ?2
  AND EXISTS (
      SELECT 1 FROM json_each(?3) AS held
      WHERE held.value ->> 0 = onceward_lane.lane AND held.value ->> 1 = onceward_lane.epoch
  )
