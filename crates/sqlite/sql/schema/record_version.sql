INSERT INTO onceward_schema (version, name, applied_at)
VALUES (?1, ?2, coalesce(?3, (SELECT micros FROM onceward_clock)))
