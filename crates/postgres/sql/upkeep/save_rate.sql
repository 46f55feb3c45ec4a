update onceward.upkeep
set rate_seq = $1::bigint, rate_at = clock_timestamp(), rate_max = greatest(rate_max, $2::double precision)
