select onceward.seal($1::bigint) as era
