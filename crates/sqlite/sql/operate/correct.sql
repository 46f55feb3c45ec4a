INSERT INTO onceward_correction (case_id, id, payload, payload_binary, corrected_at)
VALUES (?1, ?2, ?3, ?4, coalesce(?5, (SELECT micros FROM onceward_clock)))
