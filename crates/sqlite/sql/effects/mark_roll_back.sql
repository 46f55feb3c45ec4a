ROLLBACK TO onceward_mark
