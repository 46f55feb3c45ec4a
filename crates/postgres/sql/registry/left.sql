select
    (select count(*) from onceward.cases c
     where c.subscription = $1::text and c.state in ('open', 'acknowledged', 'corrected')) as cases,
    (select count(*) from onceward.deferrals d where d.subscription = $1::text) as deferred,
    (select count(*) from onceward.lanes l where l.subscription = $1::text) as lanes
