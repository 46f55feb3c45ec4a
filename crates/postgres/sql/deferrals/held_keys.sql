select d.key, d.slot, count(*) as count,
    (array_agg(
        case
            when d.kind = 'gap' then 0
            when d.due_at is not null
                then greatest(0, ceil(extract(epoch from d.due_at - t.now) * 1000))::bigint
            when d.kind = 'operator' then null
            else 0
        end
        order by d.seq))[1] as due_in_ms
from onceward.deferrals d, (select onceward.moment($4::bigint) as now) t
where d.subscription = $1::text and d.slot between $2::smallint and $3::smallint
group by d.slot, d.key
order by min(d.seq)
