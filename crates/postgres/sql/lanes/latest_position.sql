select spans from onceward.positions
where subscription = $1::text and member = $2::text
order by revision desc
limit 1
