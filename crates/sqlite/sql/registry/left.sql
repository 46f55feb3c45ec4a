SELECT
    (SELECT count(*) FROM onceward_case
     WHERE subscription = ?1 AND state IN ('open', 'acknowledged', 'corrected')) AS cases,
    (SELECT count(*) FROM onceward_deferral WHERE subscription = ?1) AS deferred,
    (SELECT count(*) FROM onceward_lane WHERE subscription = ?1) AS lanes
