select i.inhdetachpending as is_pending, i.inhparent::regclass::text as parent
from pg_catalog.pg_inherits i
where i.inhrelid = to_regclass('onceward.' || $1::text)
