INSERT INTO onceward_subscription (
    subscription, lanes, types, start_seq, not_before, terms, registered_at
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, coalesce(?7, (SELECT micros FROM onceward_clock)))
