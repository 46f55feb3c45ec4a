select onceward.micros(p.paused_at) as paused_at, onceward.micros(p.resumed_at) as resumed_at
from onceward.pauses p
where p.subscription = $1::text and p.because is null
  and (p.resumed_at is null
       or p.resumed_at > 'epoch'::timestamptz + $2::bigint * interval '1 microsecond')
order by p.paused_at
