-- Subscriptions that take a message: by type, and not recorded before their start.
SELECT
    s.subscription, s.lanes, d.kind, d.due_at, d.failures, d.deaths, d.waits, d.failure,
    coalesce(?4, (SELECT micros FROM onceward_clock)) - d.first_at AS age_micros,
    c.case_id, c.reason
FROM onceward_subscription AS s
LEFT JOIN onceward_deferral AS d ON d.seq = ?1 AND d.subscription = s.subscription
LEFT JOIN onceward_case AS c
    ON c.seq = ?1 AND c.subscription = s.subscription AND c.state = 'open'
WHERE s.start_seq < ?1 AND (s.not_before IS NULL OR s.not_before <= ?3)
  AND EXISTS (SELECT 1 FROM json_each(s.types) AS t WHERE t.value = ?2)
ORDER BY s.subscription
