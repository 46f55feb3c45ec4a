SELECT coalesce(max(generation), 0) + 1
FROM onceward_campaign
WHERE subscription = ?1 AND kind = 'rerun'
