-- Members that may still record something under a subscription's former name.
SELECT
    m.member,
    abs(m.renewed_at - coalesce(?2, (SELECT micros FROM onceward_clock)))
        < m.lease_ms * 1000 AS is_live
FROM onceward_member AS m
WHERE m.ended_at IS NULL AND EXISTS (SELECT 1 FROM json_each(m.subscriptions) WHERE value = ?1)
ORDER BY m.fence
