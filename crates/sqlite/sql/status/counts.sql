SELECT
    s.lanes, s.types, s.not_before, s.terms, s.rate_per_second, s.rate_burst,
    t.now AS now_micros,
    (SELECT count(*) FROM onceward_case AS c WHERE c.subscription = s.subscription
        AND c.state IN ('open', 'acknowledged', 'corrected')) AS quarantined,
    (SELECT p.paused_at FROM onceward_pause AS p WHERE p.subscription = s.subscription
        AND p.resumed_at IS NULL) AS paused_at,
    p.because AS still_because, p.paused_at AS still_since, p.until_at AS still_until,
    count(d.seq) FILTER (WHERE d.kind = 'retry') AS retry,
    count(d.seq) FILTER (WHERE d.kind = 'held') AS held,
    count(d.seq) FILTER (WHERE d.kind = 'running') AS running,
    count(d.seq) FILTER (WHERE d.kind = 'operator') AS operator,
    count(d.seq) FILTER (WHERE d.kind = 'gap') AS gap,
    min(coalesce(o.recorded_at, d.first_at)) AS oldest_deferred_at,
    min(d.due_at) FILTER (WHERE d.kind = 'retry' AND d.due_at <= t.now) AS due_since
FROM onceward_subscription AS s
JOIN (SELECT coalesce(?2, (SELECT micros FROM onceward_clock)) AS now) AS t
LEFT JOIN onceward_deferral AS d ON d.subscription = s.subscription
LEFT JOIN onceward_outbox AS o ON o.seq = d.seq
LEFT JOIN onceward_pause AS p ON p.pause_id = (
    SELECT max(l.pause_id) FROM onceward_pause AS l
    WHERE l.subscription = s.subscription AND l.because IS NOT NULL AND l.resumed_at > t.now
)
WHERE s.subscription = ?1
GROUP BY s.subscription
