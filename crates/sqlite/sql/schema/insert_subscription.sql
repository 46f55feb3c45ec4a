INSERT INTO onceward_subscription (
    subscription, lanes, types, start_seq, not_before, registered_at
)
VALUES (?1, ?2, ?3, ?4, ?5, coalesce(?6, (SELECT micros FROM onceward_clock)))
