-- What runs for every page and every batch, as functions: their plans are kept by each session,
-- pooled or not, and do not depend on statistics. Making a plan over all partitions costs more than
-- the work itself.

-- A page of a tick in the order of its sequence. The tick's tail lies above `after_seq` and goes from transaction `from_xid` to `to_xid`, without
-- `open_xids`, which were open at its end; `late_xids` are those that were open at its beginning, read
-- above `late_seq`. For `started` see the statement that reads a snapshot. The row after the last one
-- that fits comes too, as proof that there is one; beyond the bytes it is marked and has no payload.
-- `is true` keeps the index by transaction out of the tail, which is read in its order from the
-- primary key whatever the statistics say, and so do the settings. Times as the server sends them
-- in binary: making a number of one costs a microsecond.
create function onceward.page(
    after_seq bigint, from_xid xid8, to_xid xid8, open_xids xid8[], late_xids xid8[],
    rows_max bigint, bytes_max bigint, late_seq bigint
) returns table (
    snapshot text, started integer, is_beyond boolean,
    xid text, seq bigint, slot smallint, id text, source text, aggregatetype text,
    aggregateid text, type text, operationid text, partitionkey text, schemaversion integer,
    aggregateversion bigint, headers text, payload text, payload_binary bytea,
    occurred_at bytea, expires_at bytea, priority smallint, recorded_at bytea
)
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_sort = off
    set max_parallel_workers_per_gather = 0
    set jit = off
    set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return query
    with merged as (
        select u.* from (
            (select o.* from onceward.outbox o
             where o.seq > page.after_seq
               and o.seq > (select m.era_floor from onceward.meta m)
               and (o.xid >= page.from_xid) is true
               and (o.xid < page.to_xid) is true
               and o.xid <> all (page.open_xids)
             order by o.seq
             limit page.rows_max + 1)
            union all
            (select o.* from onceward.outbox o
             where cardinality(page.late_xids) > 0
               and o.xid = any (page.late_xids)
               and o.seq > page.late_seq
               and o.seq > (select m.era_floor from onceward.meta m)
             order by o.seq
             limit page.rows_max + 1)
        ) u
        order by u.seq
        limit page.rows_max + 1
    ), weighed as (
        select w.*, sum(w.own_bytes) over by_seq as bytes, lag(w.own_bytes, 1, 0) over by_seq as bytes_last
        from (
            select m.*, coalesce(pg_column_size(m.payload), pg_column_size(m.payload_binary)) as own_bytes
            from merged m) w
        window by_seq as (order by w.seq rows unbounded preceding)
    ), fitting as (
        select w.*, w.bytes - w.own_bytes >= page.bytes_max as is_beyond
        from weighed w
        where w.bytes - w.own_bytes - w.bytes_last < page.bytes_max
    )
    select
        case when coalesce(p.bytes_last, 0) = 0 then s.snapshot::text end,
        case when coalesce(p.bytes_last, 0) = 0 then age(pg_snapshot_xmax(s.snapshot)::xid) end,
        p.is_beyond,
        p.xid::text, p.seq, p.slot, p.id, coalesce(p.source, (select m.source from onceward.meta m)),
        p.aggregatetype, p.aggregateid, p.type, p.operationid, p.partitionkey,
        p.schemaversion, p.aggregateversion, p.headers::text,
        case when not p.is_beyond then p.payload::text end,
        case when not p.is_beyond then p.payload_binary end,
        timestamptz_send(p.occurred_at), timestamptz_send(p.expires_at), p.priority,
        timestamptz_send(p.recorded_at)
    from (select pg_current_snapshot() as snapshot) s
    left join fitting p on true
    order by p.seq;
end
$$;

-- What a ledger has of some keys: the place of each that is there among those asked for.
--
-- Identities that rise with time stand together: what lies between the lowest and the highest
-- asked for is then little, mostly nothing, and is read at once. Where it is more than was asked for,
-- each key is looked up.

-- By message: a copy that was appended again within a day is the same message. Its row has another
-- time, so there may be two of one key.
create function onceward.known(
    subscription text, sources text[], types text[], identities text[], generations integer[],
    first_recorded bigint, last_recorded bigint
) returns table (
    place bigint, digest bytea, ending text, result text, aggregateversion bigint, recordedtime bigint
)
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set max_parallel_workers_per_gather = 0
    set jit = off
    set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    earliest timestamptz = 'epoch'::timestamptz
        + known.first_recorded * interval '1 microsecond' - interval '24 hours';
    latest timestamptz = 'epoch'::timestamptz
        + known.last_recorded * interval '1 microsecond' + interval '24 hours';
    asked bigint = cardinality(known.identities);
    between_them bigint;
    of_sources text[];
    of_types text[];
    lowest text[];
    highest text[];
begin
    if asked > 8 then
        select array_agg(g.source), array_agg(g.type), array_agg(g.low), array_agg(g.high)
        into of_sources, of_types, lowest, highest
        from (
            select k.source, k.type, min(k.identity) as low, max(k.identity) as high
            from unnest(known.sources, known.types, known.identities) as k (source, type, identity)
            group by k.source, k.type) g;
        select count(*) into between_them
        from unnest(of_sources, of_types, lowest, highest) as g (source, type, low, high)
        cross join lateral (
            select 1 from onceward.ledger l
            where l.subscription = known.subscription and l.source = g.source and l.type = g.type
              and l.identity between g.low and g.high
              and l.recordedtime between earliest and latest
            limit asked + 1) l;
        if between_them = 0 then
            return;
        end if;
    end if;
    return query
    select k.place, l.digest, l.ending, l.result::text, l.aggregateversion,
        onceward.micros(l.recordedtime)
    from (
        select k.* from unnest(known.sources, known.types, known.identities, known.generations)
            with ordinality as k (source, type, identity, generation, place)
        -- As a subplan, which is made into a table of hashes once, and only where it is asked.
        where between_them is null or between_them > asked or (k.identity in (
            select l.identity
            from unnest(of_sources, of_types, lowest, highest) as g (source, type, low, high)
            cross join lateral (
                select l.identity from onceward.ledger l
                where l.subscription = known.subscription and l.source = g.source and l.type = g.type
                  and l.identity between g.low and g.high
                  and l.recordedtime between earliest and latest
                offset 0) l)) is true
        offset 0) k
    cross join lateral (
        select * from onceward.ledger l
        where l.subscription = known.subscription
          and l.source = k.source
          and l.type = k.type
          and l.identity = k.identity
          and l.generation = k.generation
          and l.recordedtime between earliest and latest
        offset 0) l;
end
$$;

-- By operation, in its own table.
create function onceward.known_operations(
    subscription text, sources text[], types text[], identities text[], generations integer[]
) returns table (
    place bigint, digest bytea, ending text, result text, aggregateversion bigint
)
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    set enable_seqscan = off
    set enable_bitmapscan = off
    set max_parallel_workers_per_gather = 0
    set jit = off
    set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    asked bigint = cardinality(known_operations.identities);
    between_them bigint;
    of_sources text[];
    of_types text[];
    lowest text[];
    highest text[];
begin
    if asked > 8 then
        select array_agg(g.source), array_agg(g.type), array_agg(g.low), array_agg(g.high)
        into of_sources, of_types, lowest, highest
        from (
            select k.source, k.type, min(k.identity) as low, max(k.identity) as high
            from unnest(known_operations.sources, known_operations.types, known_operations.identities) as k (source, type, identity)
            group by k.source, k.type) g;
        select count(*) into between_them
        from unnest(of_sources, of_types, lowest, highest) as g (source, type, low, high)
        cross join lateral (
            select 1 from onceward.operation_ledger l
            where l.subscription = known_operations.subscription and l.source = g.source and l.type = g.type
              and l.identity between g.low and g.high
            limit asked + 1) l;
        if between_them = 0 then
            return;
        end if;
    end if;
    return query
    select k.place, l.digest, l.ending, l.result::text, l.aggregateversion
    from (
        select k.* from unnest(known_operations.sources, known_operations.types, known_operations.identities, known_operations.generations)
            with ordinality as k (source, type, identity, generation, place)
        -- As a subplan, which is made into a table of hashes once, and only where it is asked.
        where between_them is null or between_them > asked or (k.identity in (
            select l.identity
            from unnest(of_sources, of_types, lowest, highest) as g (source, type, low, high)
            cross join lateral (
                select l.identity from onceward.operation_ledger l
                where l.subscription = known_operations.subscription and l.source = g.source and l.type = g.type
                  and l.identity between g.low and g.high
                offset 0) l)) is true
        offset 0) k
    cross join lateral (
        select * from onceward.operation_ledger l
        where l.subscription = known_operations.subscription
          and l.source = k.source
          and l.type = k.type
          and l.identity = k.identity
          and l.generation = k.generation
        offset 0) l;
end
$$;
