SELECT
    s.types, s.terms, (SELECT report FROM onceward_tidy) AS report,
    coalesce(?2, (SELECT micros FROM onceward_clock)) AS now,
    coalesce((SELECT min(l.position_seq) FROM onceward_lane AS l
              WHERE l.subscription = s.subscription), 0) AS past_seq
FROM onceward_subscription AS s
WHERE s.subscription = ?1
