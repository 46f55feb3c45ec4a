UPDATE onceward_subscription SET types = ?2 WHERE subscription = ?1 AND types <> ?2
