INSERT INTO onceward_campaign_item (
    campaign_id, seq, subscription, id, type, key, recorded_at, case_id, generation, state, finding,
    note
)
VALUES
(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
