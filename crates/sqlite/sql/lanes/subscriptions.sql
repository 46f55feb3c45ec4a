SELECT
    s.subscription, s.revision, s.concurrency_max, s.rate_per_second, s.rate_burst,
    EXISTS (
        SELECT 1 FROM onceward_pause AS p
        WHERE p.subscription = s.subscription AND p.resumed_at IS NULL
    ) AS is_paused,
    EXISTS (
        SELECT 1 FROM onceward_campaign AS c
        WHERE c.subscription = s.subscription AND c.is_active = 1
    ) AS has_campaign
FROM onceward_subscription AS s
ORDER BY s.subscription
