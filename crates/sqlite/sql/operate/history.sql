SELECT audit_id, acted_at, who, action, subscription, case_id, why, before, after
FROM onceward_audit
WHERE (?1 IS NULL OR case_id = ?1) AND (?2 IS NULL OR subscription = ?2) AND audit_id > ?3
ORDER BY audit_id
LIMIT ?4
