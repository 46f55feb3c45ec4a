SELECT paused_at, resumed_at FROM onceward_pause
WHERE subscription = ?1 AND because IS NULL AND (resumed_at IS NULL OR resumed_at > ?2)
ORDER BY paused_at
