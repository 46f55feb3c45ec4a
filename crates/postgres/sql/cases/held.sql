select distinct coalesce(c.partitionkey, c.aggregateid) as key, c.slot
from onceward.cases c
where c.subscription = $1::text and c.slot between $2::smallint and $3::smallint
  and c.holds_key and c.state in ('open', 'acknowledged', 'corrected')
