SELECT seq FROM sqlite_sequence WHERE name = 'onceward_outbox'
