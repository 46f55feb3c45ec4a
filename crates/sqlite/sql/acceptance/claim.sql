-- A key whose memory has run out is claimed anew.
INSERT INTO onceward_acceptance (caller, key, digest, accepted_at, expires_at)
VALUES (
    ?1, ?2, ?3, coalesce(?5, (SELECT micros FROM onceward_clock)),
    coalesce(?5, (SELECT micros FROM onceward_clock)) + ?4 * 1000
)
ON CONFLICT (caller, key) DO UPDATE
SET digest = excluded.digest, answer = NULL, accepted_at = excluded.accepted_at,
    expires_at = excluded.expires_at
WHERE onceward_acceptance.expires_at <= excluded.accepted_at
