SELECT DISTINCT key, slot FROM onceward_case
WHERE holds_key = 1 AND state IN ('open', 'acknowledged', 'corrected')
  AND subscription = ?1 AND slot BETWEEN ?2 AND ?3
ORDER BY slot, key
