-- Waits for whoever is about to clear one: its commit may have been sent without an answer.
select seq from onceward.deferrals
where subscription = $1::text and seq = any ($2::bigint[])
order by seq
for update
