select r.leaf from onceward.ranges r where r.emptied_at is not null order by r.first limit $1::bigint
