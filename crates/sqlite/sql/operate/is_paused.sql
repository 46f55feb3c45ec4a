SELECT EXISTS (
    SELECT 1 FROM onceward_pause AS p
    WHERE p.subscription = s.subscription AND p.resumed_at IS NULL
)
FROM onceward_subscription AS s
WHERE s.subscription = ?1
