-- Keys behind which messages are held, those that have waited the longest first. ?3 and ?4: only
-- those beyond one of these limits. With one min(), `behind` comes from the key's first message.
SELECT
    h.key, h.slot, h.depth, h.held_since, h.behind, t.now,
    (SELECT min(c.case_id) FROM onceward_case AS c
     WHERE c.subscription = ?1 AND c.slot = h.slot AND c.key = h.key
       AND c.holds_key = 1 AND c.state IN ('open', 'acknowledged', 'corrected')) AS case_id
FROM (SELECT coalesce(?2, (SELECT micros FROM onceward_clock)) AS now) AS t
JOIN (
    SELECT
        d.key, d.slot, d.kind AS behind, min(d.seq) AS first_seq,
        sum(d.kind = 'held') AS depth,
        (SELECT f.first_at FROM onceward_deferral AS f
         WHERE f.subscription = ?1 AND f.slot = d.slot AND f.key = d.key AND f.kind = 'held'
         ORDER BY f.first_at LIMIT 1) AS held_since
    FROM onceward_deferral AS d
    WHERE d.subscription = ?1
    GROUP BY d.slot, d.key
) AS h
WHERE h.depth > 0
  AND ((?3 IS NULL AND ?4 IS NULL) OR h.depth > ?3 OR h.held_since < t.now - ?4 * 1000)
ORDER BY h.held_since, h.key
LIMIT ?5
