SELECT seq
FROM onceward_case
WHERE subscription = ?1
  AND seq IN (SELECT value FROM json_each(?2))
ORDER BY seq
