INSERT INTO onceward_campaign_item (
    campaign_id, seq, subscription, id, type, key, recorded_at, case_id, generation, state, finding,
    note
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
