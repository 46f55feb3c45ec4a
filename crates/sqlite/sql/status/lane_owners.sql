SELECT
    l.lane, l.position_seq, l.position, m.description AS owner,
    m.member IS NOT NULL AND m.ended_at IS NULL
    AND abs(m.renewed_at - coalesce(?2, (SELECT micros FROM onceward_clock)))
        < m.lease_ms * 1000
        AS is_live
FROM onceward_lane AS l
LEFT JOIN onceward_member AS m ON m.member = l.owner
WHERE l.subscription = ?1
ORDER BY l.lane
