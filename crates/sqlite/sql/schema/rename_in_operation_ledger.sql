UPDATE onceward_operation_ledger SET subscription = ?2 WHERE subscription = ?1
