INSERT INTO onceward_audit (
    acted_at, who, action, subscription, case_id, why, before, after
)
VALUES (coalesce(?1, (SELECT micros FROM onceward_clock)), ?2, ?3, ?4, ?5, ?6, ?7, ?8)
