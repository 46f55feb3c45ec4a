DELETE FROM onceward_acceptance
WHERE rowid IN (
    SELECT rowid FROM onceward_acceptance
    WHERE expires_at <= coalesce(?1, (SELECT micros FROM onceward_clock))
    ORDER BY expires_at
    LIMIT ?2
)
