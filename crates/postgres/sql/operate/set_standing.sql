update onceward.cases
set state = $2::text, owner = $3::text,
    due_at = 'epoch'::timestamptz + $4::bigint * interval '1 microsecond',
    replays = $5::integer, corrected_id = $6::text
where case_id = $1::bigint
