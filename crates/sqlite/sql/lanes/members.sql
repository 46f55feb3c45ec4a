SELECT
    member, description, subscriptions,
    abs(renewed_at - coalesce(?1, (SELECT micros FROM onceward_clock)))
        < lease_ms * 1000 AS is_live
FROM onceward_member
WHERE ended_at IS NULL
ORDER BY fence
