-- Subscriptions that take a message: by type, and not recorded before their start.
SELECT
    s.subscription, s.lanes, s.terms, d.kind, d.due_at, d.failures, d.deaths, d.waits, d.failure,
    max(0, t.now - d.first_at - coalesce((
        SELECT sum(max(0,
            min(coalesce(p.resumed_at, t.now), t.now) - max(p.paused_at, d.first_at)))
        FROM onceward_pause AS p
        WHERE p.subscription = d.subscription
          AND (p.resumed_at IS NULL OR p.resumed_at > d.first_at)
    ), 0)) AS age_micros,
    c.case_id, c.reason, c.state
FROM onceward_subscription AS s
JOIN (SELECT coalesce(?4, (SELECT micros FROM onceward_clock)) AS now) AS t
LEFT JOIN onceward_deferral AS d ON d.seq = ?1 AND d.subscription = s.subscription
LEFT JOIN onceward_case AS c ON c.seq = ?1 AND c.subscription = s.subscription
WHERE s.start_seq < ?1 AND (s.not_before IS NULL OR s.not_before <= ?3)
  AND EXISTS (SELECT 1 FROM json_each(s.types) AS t WHERE t.value = ?2)
ORDER BY s.subscription
