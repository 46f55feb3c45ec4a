SELECT
    g.fingerprint, c.subscription, c.type, c.failure, g.live, g.total, g.first_at, g.last_at,
    g.oldest
FROM (
    SELECT
        fingerprint,
        count(*) FILTER (WHERE state IN ('open', 'acknowledged', 'corrected')) AS live,
        count(*) AS total,
        min(first_opened_at) AS first_at,
        max(opened_at) AS last_at,
        coalesce(
            min(case_id) FILTER (WHERE state IN ('open', 'acknowledged', 'corrected')), min(case_id)
        ) AS oldest
    FROM onceward_case
    WHERE ?1 IS NULL OR subscription = ?1
    GROUP BY fingerprint
) AS g
JOIN onceward_case AS c ON c.case_id = g.oldest
WHERE g.live > 0 OR ?2
ORDER BY g.live DESC, g.oldest
LIMIT ?3
