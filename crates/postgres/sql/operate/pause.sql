insert into onceward.pauses (subscription, paused_at)
values ($1::text, onceward.moment($2::bigint))
