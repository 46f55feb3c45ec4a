insert into onceward.corrections (case_id, id, payload, payload_binary, corrected_at)
values ($1::bigint, $2::text, $3::text::json, $4::bytea, onceward.moment($5::bigint))
