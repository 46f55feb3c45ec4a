-- Rows that were added with every case become one for each cause, once there are many.
with gone as (
    delete from onceward.case_tallies
    where tally_id = any (array(
        select t.tally_id from onceward.case_tallies t
        where (select count(*) from (
                   select from onceward.case_tallies limit $1::bigint + 1) m) > $1::bigint
        order by t.tally_id
        limit $2::bigint
        for update skip locked))
    returning fingerprint, live, total)
insert into onceward.case_tallies (fingerprint, live, total)
select fingerprint, sum(live), sum(total)
from gone
group by fingerprint
having sum(live) <> 0 or sum(total) <> 0
