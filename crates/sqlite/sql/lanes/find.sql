SELECT
    l.epoch, l.owner, l.position, l.is_suspect, s.lanes, s.not_before,
    (SELECT max(era) FROM onceward_era) AS era,
    m.member IS NOT NULL AND m.ended_at IS NULL
    AND abs(m.renewed_at - coalesce(?3, (SELECT micros FROM onceward_clock)))
        < m.lease_ms * 1000
        AS owner_is_live
FROM onceward_lane AS l
JOIN onceward_subscription AS s ON s.subscription = l.subscription
LEFT JOIN onceward_member AS m ON m.member = l.owner
WHERE l.subscription = ?1 AND l.lane = ?2
