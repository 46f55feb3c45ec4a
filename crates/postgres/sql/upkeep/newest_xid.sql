select coalesce(max(xid)::text, '0') as xid from onceward.outbox
where seq >= $1::bigint and seq < $2::bigint
