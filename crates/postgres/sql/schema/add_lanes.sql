insert into onceward.lanes (subscription, lane, position, not_before)
select $1::text, n, $3::text, 'epoch'::timestamptz + $4::bigint * interval '1 microsecond'
from generate_series(0, $2::integer - 1) n
