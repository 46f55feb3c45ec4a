-- Numbers come from the tallies, the rest from a few places of indexes for each cause. Cases are
-- numbered as they are first opened.
SELECT
    g.fingerprint, o.subscription, o.type, o.failure, g.live, g.total,
    f.first_opened_at AS first_at,
    (SELECT max(c.opened_at) FROM onceward_case AS c WHERE c.fingerprint = g.fingerprint)
        AS last_at,
    o.case_id AS oldest
FROM (
    SELECT
        t.fingerprint, t.live, t.total,
        min(
            coalesce((SELECT min(c.case_id) FROM onceward_case AS c
                WHERE c.fingerprint = t.fingerprint AND c.state = 'open'), 1 << 62),
            coalesce((SELECT min(c.case_id) FROM onceward_case AS c
                WHERE c.fingerprint = t.fingerprint AND c.state = 'acknowledged'), 1 << 62),
            coalesce((SELECT min(c.case_id) FROM onceward_case AS c
                WHERE c.fingerprint = t.fingerprint AND c.state = 'corrected'), 1 << 62)
        ) AS live_id,
        min(
            coalesce((SELECT min(c.case_id) FROM onceward_case AS c
                WHERE c.fingerprint = t.fingerprint AND c.state = 'replayed'), 1 << 62),
            coalesce((SELECT min(c.case_id) FROM onceward_case AS c
                WHERE c.fingerprint = t.fingerprint AND c.state = 'discarded'), 1 << 62),
            coalesce((SELECT min(c.case_id) FROM onceward_case AS c
                WHERE c.fingerprint = t.fingerprint AND c.state = 'waived'), 1 << 62)
        ) AS ended_id
    FROM onceward_case_tally AS t
    WHERE t.total > 0 AND (t.live > 0 OR ?2)
) AS g
JOIN onceward_case AS o ON o.case_id = CASE WHEN g.live > 0 THEN g.live_id ELSE g.ended_id END
JOIN onceward_case AS f ON f.case_id = min(g.live_id, g.ended_id)
WHERE ?1 IS NULL OR o.subscription = ?1
ORDER BY g.live DESC, oldest
LIMIT ?3
