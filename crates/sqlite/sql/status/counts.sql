SELECT
    s.lanes, s.types, s.not_before, s.terms,
    coalesce(?2, (SELECT micros FROM onceward_clock)) AS now_micros,
    (SELECT count(*) FROM onceward_case AS c WHERE c.subscription = s.subscription
        AND c.state IN ('open', 'acknowledged', 'corrected')) AS quarantined,
    (SELECT p.paused_at FROM onceward_pause AS p WHERE p.subscription = s.subscription
        AND p.resumed_at IS NULL) AS paused_at,
    count(d.seq) FILTER (WHERE d.kind = 'retry') AS retry,
    count(d.seq) FILTER (WHERE d.kind = 'held') AS held,
    count(d.seq) FILTER (WHERE d.kind = 'running') AS running,
    count(d.seq) FILTER (WHERE d.kind = 'operator') AS operator,
    count(d.seq) FILTER (WHERE d.kind = 'gap') AS gap,
    min(coalesce(o.recorded_at, d.first_at)) AS oldest_deferred_at
FROM onceward_subscription AS s
LEFT JOIN onceward_deferral AS d ON d.subscription = s.subscription
LEFT JOIN onceward_outbox AS o ON o.seq = d.seq
WHERE s.subscription = ?1
GROUP BY s.subscription
