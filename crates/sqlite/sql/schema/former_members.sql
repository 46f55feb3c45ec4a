-- Members that may still record something under a subscription's former name.
SELECT
    m.member,
    m.renewed_at + m.lease_ms * 1000 > coalesce(?2, (SELECT micros FROM onceward_clock)) AS is_live
FROM onceward_member AS m
WHERE m.ended_at IS NULL AND EXISTS (SELECT 1 FROM json_each(m.subscriptions) WHERE value = ?1)
ORDER BY m.fence
