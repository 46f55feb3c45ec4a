select onceward.micros(made_at) as made_at, report from onceward.upkeep where report is not null
