INSERT INTO onceward_era (era, started_at)
SELECT max(era) + 1, coalesce(?1, (SELECT micros FROM onceward_clock)) FROM onceward_era
RETURNING era
