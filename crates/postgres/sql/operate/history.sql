select a.audit_id, onceward.micros(a.acted_at) as acted_at, a.who, a.action, a.subscription,
    a.case_id, a.why, a.before::text as before, a.after::text as after
from onceward.audit a
where ($1::bigint is null or a.case_id = $1::bigint)
  and ($2::text is null or a.subscription = $2::text)
  and a.audit_id > $3::bigint
order by a.audit_id
limit $4::bigint
