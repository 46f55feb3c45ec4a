-- A pause that ends by itself, where no other lasts. Pauses never overlap, so that ages need only add
-- them up.
INSERT INTO onceward_pause (subscription, paused_at, resumed_at, because, until_at)
SELECT
    s.subscription, max(t.now - ?3 * 1000, coalesce(p.resumed_at, t.now - ?3 * 1000)),
    t.now + ?5 * 1000, ?2, t.now + ?4 * 1000
FROM onceward_subscription AS s
JOIN (SELECT coalesce(?6, (SELECT micros FROM onceward_clock)) AS now) AS t
LEFT JOIN onceward_pause AS p ON p.pause_id = (
    SELECT max(l.pause_id) FROM onceward_pause AS l WHERE l.subscription = s.subscription
)
WHERE s.subscription = ?1
  AND (p.pause_id IS NULL OR p.resumed_at <= t.now)
