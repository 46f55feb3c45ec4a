INSERT INTO onceward_lane (subscription, lane, position, position_seq) VALUES (?1, ?2, ?3, ?4)
