insert into onceward.positions (subscription, member, spans)
select $1::text, $2::text, $3::text
from onceward.members m
where m.member = $2::text and m.ended_at is null
