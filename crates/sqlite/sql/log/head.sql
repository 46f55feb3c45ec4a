SELECT
    (SELECT max(era) FROM onceward_era) AS era,
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'onceward_outbox'), 0) AS head_seq
