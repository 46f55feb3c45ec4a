UPDATE onceward_subscription SET types = ?2, terms = ?3
WHERE subscription = ?1 AND (types <> ?2 OR terms IS NOT ?3)
