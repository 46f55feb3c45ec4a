-- Keys behind which messages are held, those that have waited the longest first. $3 and $4: only
-- those beyond one of these limits.
select h.key, h.slot, h.depth, onceward.micros(h.held_since) as held_since, h.behind, c.case_id,
    onceward.micros(t.now) as now
from (select onceward.moment($2::bigint) as now) t
cross join lateral (
    select d.key, d.slot,
        count(*) filter (where d.kind = 'held') as depth,
        min(d.first_deferred_at) filter (where d.kind = 'held') as held_since,
        (array_agg(d.kind order by d.seq))[1] as behind
    from onceward.deferrals d
    where d.subscription = $1::text
    group by d.slot, d.key
    having count(*) filter (where d.kind = 'held') > 0
       and (($3::bigint is null and $4::bigint is null)
            or count(*) filter (where d.kind = 'held') > $3::bigint
            or min(d.first_deferred_at) filter (where d.kind = 'held')
               < t.now - $4::bigint * interval '1 millisecond')
    order by held_since, d.key collate "C"
    limit $5::bigint) h
left join lateral (
    select min(c.case_id) as case_id from onceward.cases c
    where c.subscription = $1::text and c.slot = h.slot and c.key = h.key
      and c.holds_key and c.state in ('open', 'acknowledged', 'corrected')) c on true
order by h.held_since, h.key collate "C"
