SELECT
    s.subscription, s.revision, s.concurrency_max,
    EXISTS (
        SELECT 1 FROM onceward_pause AS p
        WHERE p.subscription = s.subscription AND p.resumed_at IS NULL
    ) AS is_paused
FROM onceward_subscription AS s
ORDER BY s.subscription
