select
    exists (select from onceward.deferrals d
            where d.subscription = c.subscription and d.seq = c.seq) as is_deferred,
    exists (select from onceward.outbox o where o.seq = c.seq) as is_in_log
from onceward.cases c
where c.case_id = $1::bigint
