UPDATE onceward_acceptance
SET answer = ?4, expires_at = accepted_at + ?5 * 1000
WHERE caller = ?1 AND key = ?2 AND digest = ?3
