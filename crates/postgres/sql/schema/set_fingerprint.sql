update onceward.cases set fingerprint = $2::text where case_id = $1::bigint
