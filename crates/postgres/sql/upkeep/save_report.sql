update onceward.upkeep set made_at = onceward.moment($1::bigint), report = $2::text
