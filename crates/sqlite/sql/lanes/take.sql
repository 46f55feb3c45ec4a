UPDATE onceward_lane
SET owner = ?3, epoch = epoch + 1, is_suspect = 0
WHERE subscription = ?1 AND lane = ?2
RETURNING epoch
