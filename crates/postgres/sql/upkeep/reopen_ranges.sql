-- Emptied ranges that were written to since, with numbers taken in advance, count as closed just now.
update onceward.ranges r
set emptied_at = null, closed_at = onceward.moment($1::bigint)
where r.emptied_at is not null
  and exists (select 1 from onceward.outbox o where o.seq >= r.first and o.seq < r.next)
returning r.leaf
