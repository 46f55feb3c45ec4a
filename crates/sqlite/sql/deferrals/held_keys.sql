-- With min(), the other columns come from the row that holds the minimum: the key's first message.
SELECT
    key, slot, count(*) AS deferred, kind, min(seq) AS first_seq,
    max(0, due_at - coalesce(?4, (SELECT micros FROM onceward_clock))) AS due_in_micros
FROM onceward_deferral
WHERE subscription = ?1 AND slot BETWEEN ?2 AND ?3
GROUP BY slot, key
ORDER BY first_seq
