select r.first, r.next, r.leaf, r.closing_xmax::text as closing_xmax,
    (select d.subscription from onceward.deferrals d
     where d.seq >= r.first and d.seq < r.next order by d.seq limit 1) as deferred_by,
    (select i.campaign_id from onceward.campaign_items i
     where i.seq >= r.first and i.seq < r.next
       and i.state in ('planned', 'running') and i.case_id is null
     order by i.seq limit 1) as replayed_by,
    (select m.era_floor from onceward.meta m) as era_floor
from onceward.ranges r
where r.emptied_at is null
  and r.closed_at < onceward.moment($1::bigint) - $2::bigint * interval '1 millisecond'
order by r.first
