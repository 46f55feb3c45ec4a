select onceward.micros(onceward.moment($1::bigint)) as now
