INSERT INTO onceward_member (member, description, subscriptions, lease_ms, renewed_at)
VALUES (?1, ?2, ?3, ?4, coalesce(?5, (SELECT micros FROM onceward_clock)))
RETURNING fence
