SELECT
    EXISTS (SELECT 1 FROM onceward_deferral AS d
            WHERE d.subscription = c.subscription AND d.seq = c.seq) AS is_deferred,
    EXISTS (SELECT 1 FROM onceward_outbox AS o WHERE o.seq = c.seq) AS is_in_log
FROM onceward_case AS c
WHERE c.case_id = ?1
