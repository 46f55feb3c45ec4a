SELECT
    member, description, subscriptions,
    renewed_at + lease_ms * 1000 > coalesce(?1, (SELECT micros FROM onceward_clock)) AS is_live
FROM onceward_member
WHERE ended_at IS NULL
ORDER BY fence
