-- One plan at a time: generations and items of two would meet.
select s.types, s.terms,
    (select u.report from onceward.upkeep u) as report,
    onceward.micros(onceward.moment($2::bigint)) as now
from onceward.subscriptions s
where s.subscription = $1::text
for no key update of s
