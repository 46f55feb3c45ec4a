select coalesce(max(c.generation), 0) + 1 as generation
from onceward.campaigns c
where c.subscription = $1::text and c.kind = 'rerun'
