-- An operator's pause ends whatever lasts beyond its beginning: one that would have ended by itself,
-- or one that ended later by a clock that was set back. Pauses never overlap.
with cut as (
    update onceward.pauses p
    set resumed_at = greatest(p.paused_at, t.now)
    from (select onceward.moment($2::bigint) as now) t
    where p.subscription = $1::text and p.resumed_at > t.now
)
insert into onceward.pauses (subscription, paused_at)
values ($1::text, onceward.moment($2::bigint))
