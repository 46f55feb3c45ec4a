select seq
from onceward.cases
where subscription = $1
  and seq = any ($2::bigint[])
order by seq
