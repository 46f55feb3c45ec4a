-- Only this: a row that someone else changed meanwhile would be joined with what was there before.
select l.lane from onceward.lanes l
where l.subscription = $1::text and l.lane = any ($2::integer[])
order by l.lane
for update
