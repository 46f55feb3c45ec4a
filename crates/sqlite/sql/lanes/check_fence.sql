SELECT EXISTS (
    SELECT 1 FROM onceward_member WHERE fence = ?1 AND member = ?2 AND ended_at IS NULL
)
