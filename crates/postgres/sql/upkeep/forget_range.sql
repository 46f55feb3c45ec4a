delete from onceward.ranges where leaf = $1::text and emptied_at is not null
