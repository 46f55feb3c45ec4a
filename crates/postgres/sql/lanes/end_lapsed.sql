update onceward.members m
set ended_at = t.now, ended_cleanly = false
from (select onceward.moment($2::bigint) as now) t
where m.fence = $1::bigint and m.ended_at is null and onceward.has_lapsed(m.fence, t.now)
