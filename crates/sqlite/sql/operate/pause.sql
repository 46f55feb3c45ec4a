INSERT INTO onceward_pause (subscription, paused_at)
VALUES (?1, coalesce(?2, (SELECT micros FROM onceward_clock)))
