-- Fails where nothing can be written.
create function onceward.check_writable() returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
begin
    if current_setting('transaction_read_only')::boolean then
        raise exception using errcode = 'read_only_sql_transaction',
            message = 'this session can only read';
    end if;
end
$$;

-- Fails on a standby, so that the connection is given up and another one is made.
create function onceward.is_standby() returns boolean
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    if pg_is_in_recovery() then
        raise exception using errcode = 'read_only_sql_transaction',
            message = 'the server is a standby';
    end if;
    return false;
end
$$;

-- Opens an effect transaction: takes the member's fence, shared, and then, with a snapshot taken
-- after the lock, looks whether the member has been ended.
create function onceward.enter(fence bigint, lease_ms bigint) returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform onceward.check_writable();
    perform pg_advisory_xact_lock_shared(enter.fence);
    perform 1 from onceward.members m where m.fence = enter.fence and m.ended_at is null;
    if not found then
        raise exception using errcode = 'OW001', message = 'the lease was taken over';
    end if;
    perform set_config('idle_in_transaction_session_timeout',
        greatest(1, least(enter.lease_ms, 2147483647))::text, true);
end
$$;

-- Whether a member's lease has run out by the given moment. A heartbeat that is further ahead than
-- a lease was made before the clock was set back: it would keep the lease of a dead one for long.
create function onceward.has_lapsed(fence bigint, now timestamptz) returns boolean
    language sql stable
    begin atomic
        select coalesce((
            select has_lapsed.now not between
                h.beat_at - m.lease_ms * interval '1 millisecond'
                and h.beat_at + m.lease_ms * interval '1 millisecond'
            from onceward.heartbeats h
            join onceward.members m on m.fence = h.fence
            where h.fence = has_lapsed.fence
            order by h.revision desc
            limit 1), true);
    end;

-- Claims an idempotency key without ever waiting for another claim of it.
create function onceward.accept(
    caller text, key text, digest bytea, memory_ms bigint, now timestamptz,
    out state text, out answer text)
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    known onceward.acceptances;
begin
    if not pg_try_advisory_xact_lock(hashtextextended(accept.caller || E'\x01' || accept.key, 7306)) then
        state := 'in-flight';
        return;
    end if;
    select * into known from onceward.acceptances a
    where a.caller = accept.caller and a.key = accept.key and a.expires_at > accept.now;
    if not found then
        insert into onceward.acceptances as a (caller, key, digest, accepted_at, expires_at)
        values (accept.caller, accept.key, accept.digest, accept.now,
            accept.now + accept.memory_ms * interval '1 millisecond')
        on conflict on constraint acceptances_pkey do update
        set digest = excluded.digest, answer = null,
            accepted_at = excluded.accepted_at, expires_at = excluded.expires_at;
        state := 'first';
    elsif known.digest <> accept.digest then
        state := 'mismatch';
    else
        state := 'again';
        answer := coalesce(known.answer, 'null');
    end if;
end
$$;

-- Makes a range of the log ahead. The table is prepared first and then attached, which takes no
-- lock that an append could wait behind.
create function onceward.make_range(first bigint, next bigint) returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    leaf text := 'outbox_' || make_range.first;
begin
    execute format('create table onceward.%I (like onceward.outbox including defaults
        including constraints including generated including storage including indexes)', leaf);
    execute format('alter table onceward.outbox attach partition onceward.%I
        for values from (%s) to (%s)', leaf, make_range.first, make_range.next);
    insert into onceward.ranges (first, next, leaf) values (make_range.first, make_range.next, leaf);
end
$$;

-- Makes a day of the ledger (UTC) ahead, likewise.
create function onceward.make_day(day date) returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
    set timezone = 'UTC'
as $$
declare
    leaf text := 'ledger_' || to_char(make_day.day, 'YYYYMMDD');
    first timestamptz := make_day.day::timestamp at time zone 'UTC';
    next timestamptz := (make_day.day + 1)::timestamp at time zone 'UTC';
begin
    execute format('create table onceward.%I (like onceward.ledger including defaults
        including constraints including storage including indexes)', leaf);
    execute format('alter table onceward.ledger attach partition onceward.%I
        for values from (%L) to (%L)', leaf, first, next);
end
$$;

-- Takes a restored or copied database into service. Appends wait for the moment it takes: with
-- none open, every row there is belongs to the era that ends, and a restarted sequence makes other
-- sessions drop the numbers they hold in advance, so that every later row is above the seal.
create function onceward.seal(trusted_seq bigint) returns integer
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    last bigint;
    old_era integer;
begin
    lock table onceward.outbox in share row exclusive mode;
    select greatest(
        (select s.last_value from onceward.outbox_seq s),
        (select coalesce(max(o.seq), 0) from onceward.outbox o)) into last;
    execute format('alter sequence onceward.outbox_seq restart with %s', last + 1);
    select m.era into old_era from onceward.meta m;
    update onceward.eras e
    set sealed_at = now(), sealed_seq = last, trusted_seq = least(seal.trusted_seq, last)
    where e.era = old_era;
    insert into onceward.eras (era, opening, opening_floor)
    values (old_era + 1, pg_current_snapshot()::text, last);
    update onceward.ranges
    set closing_xmax = pg_snapshot_xmax(pg_current_snapshot())::text::xid8
    where closed_at is not null;
    update onceward.meta
    set era = old_era + 1, era_floor = last, identity = onceward.identity();
    return old_era + 1;
end
$$;

-- Notes which ranges of the log the sequence has left behind. The look at transactions comes after
-- the sequence was seen beyond the range, so every transaction that drew from it is below what had
-- been started by then.
create function onceward.close_ranges(now timestamptz) returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    last bigint;
    started xid8;
begin
    select s.last_value into last from onceward.outbox_seq s;
    -- The snapshot's xmax is one above the last transaction that has ended; its age is the number of
    -- those above it that have started.
    select pg_snapshot_xmax(pg_current_snapshot()) into started;
    started := (started::text::numeric + age(started::xid))::text::xid8;
    update onceward.ranges r
    set closed_at = close_ranges.now, closing_xmax = started
    where r.closed_at is null and r.next <= last;
end
$$;

-- Moves the sequence on to the next range, so that what is there can go as a whole one day. Only
-- forward, only when far below the border, and by one caller at a time: a sequence set back would
-- give out numbers twice.
create function onceward.cut(older_than timestamptz) returns boolean
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    last bigint;
    here onceward.ranges;
    oldest timestamptz;
begin
    if not pg_try_advisory_xact_lock(8029464471091019774) then
        return false;
    end if;
    select s.last_value into last from onceward.outbox_seq s;
    select * into here from onceward.ranges r where r.first <= last and r.next > last;
    if not found or last > here.next - 1073741824
        or not exists (select 1 from onceward.ranges r where r.first = here.next) then
        return false;
    end if;
    execute format('select o.recorded_at from onceward.outbox o
        where o.seq >= %s and o.seq < %s order by o.seq limit 1', here.first, here.next) into oldest;
    if oldest is null or oldest > cut.older_than then
        return false;
    end if;
    perform setval('onceward.outbox_seq', here.next, false);
    return true;
end
$$;
