INSERT INTO onceward_campaign (subscription, kind, generation, state, is_active, record)
VALUES (?1, ?2, ?3, 'planned', 0, ?4)
RETURNING campaign_id
