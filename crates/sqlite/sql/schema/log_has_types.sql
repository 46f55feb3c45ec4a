SELECT EXISTS (
    SELECT 1 FROM onceward_outbox WHERE type IN (SELECT value FROM json_each(?1))
)
