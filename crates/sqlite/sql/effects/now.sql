SELECT coalesce(?1, (SELECT micros FROM onceward_clock)) AS now
