insert into onceward.heartbeats (fence, beat_at)
select m.fence, onceward.moment($2::bigint)
from onceward.members m
where m.fence = $1::bigint and m.ended_at is null
