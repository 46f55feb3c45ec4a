SELECT
    c.campaign_id, c.subscription, c.record, s.types, s.terms,
    (SELECT report FROM onceward_tidy) AS report,
    coalesce(?2, (SELECT micros FROM onceward_clock)) AS now, 0 AS past_seq
FROM onceward_campaign AS c
LEFT JOIN onceward_subscription AS s ON s.subscription = c.subscription
WHERE c.campaign_id = ?1
