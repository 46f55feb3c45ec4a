-- Functions. Bodies are bound when they are created (or have a fixed search path), so that no
-- search path of a session can change what they mean.

-- Microseconds since the epoch.
create function onceward.micros(moment timestamptz) returns bigint
    language sql immutable strict parallel safe
    return (extract(epoch from moment) * 1000000)::bigint;

-- The given moment, else the database's clock.
create function onceward.moment(micros bigint) returns timestamptz
    language sql volatile parallel safe
    return coalesce('epoch'::timestamptz + micros * interval '1 microsecond', clock_timestamp());

-- Which database this is: changes when it is restored or copied.
create function onceward.identity() returns text
    language sql stable
    return (select c.system_identifier::text from pg_catalog.pg_control_system() c)
        || '/' || (select d.oid::text from pg_catalog.pg_database d
                   where d.datname = pg_catalog.current_database());

create table onceward.meta (
    only_row boolean primary key default true check (only_row),
    source text not null,
    identity text not null,
    era integer not null,
    -- Rows up to here belong to earlier eras.
    era_floor bigint not null
);
insert into onceward.meta (source, identity, era, era_floor)
values ('urn:onceward:' || current_database(), onceward.identity(), 1, 0);

create table onceward.eras (
    era integer primary key,
    -- The boundary before the first row, as text; the first era starts before everything.
    opening text not null,
    opening_floor bigint not null,
    sealed_at timestamptz,
    sealed_seq bigint,
    -- Rows of the sealed era above this may carry transaction ids of another cluster.
    trusted_seq bigint
);
insert into onceward.eras (era, opening, opening_floor) values (1, '1:1:', 0);

-- The log. Column order matters: xid is drawn before seq, so that a row whose transaction started
-- after a snapshot has a sequence above what the sequence had given out before that snapshot.
create sequence onceward.outbox_seq as bigint cache 1;
create table onceward.outbox (
    xid xid8 not null default pg_catalog.pg_current_xact_id(),
    seq bigint not null default nextval('onceward.outbox_seq'),
    slot smallint not null generated always as (
        (pg_catalog.hashtextextended(coalesce(partitionkey, aggregateid) collate "C", 0) & 1023)::smallint
    ) stored,
    id text not null,
    source text,
    aggregatetype text not null,
    aggregateid text not null,
    type text not null,
    operationid text,
    partitionkey text,
    schemaversion integer,
    aggregateversion bigint,
    headers json,
    payload json,
    payload_binary bytea,
    occurred_at timestamptz,
    expires_at timestamptz,
    priority smallint not null default 0,
    recorded_at timestamptz not null default now(),
    constraint outbox_id_length check (octet_length(id) between 1 and 1000),
    constraint outbox_source_length check (octet_length(source) between 1 and 500),
    constraint outbox_type_length check (octet_length(type) between 1 and 255),
    constraint outbox_operationid_length check (octet_length(operationid) between 1 and 1000),
    constraint outbox_aggregatetype_not_empty check (aggregatetype <> ''),
    constraint outbox_aggregateid_not_empty check (aggregateid <> ''),
    constraint outbox_partitionkey_not_empty check (partitionkey <> ''),
    constraint outbox_aggregateversion_not_negative check (aggregateversion >= 0),
    constraint outbox_one_payload check (num_nonnulls(payload, payload_binary) = 1),
    constraint outbox_headers_object check (jsonb_typeof(headers::jsonb) = 'object'),
    -- What RFC 3339 can write, and what fits into 64-bit microseconds: a row that cannot be read
    -- would stop the log.
    constraint outbox_times_of_rfc3339 check (
        occurred_at >= '0001-01-01 00:00:00+00' and occurred_at < '10000-01-01 00:00:00+00'
        and expires_at >= '0001-01-01 00:00:00+00' and expires_at < '10000-01-01 00:00:00+00'
        and recorded_at >= '0001-01-01 00:00:00+00' and recorded_at < '10000-01-01 00:00:00+00'
    ),
    primary key (seq)
) partition by range (seq);
alter sequence onceward.outbox_seq owned by onceward.outbox.seq;
-- Kept as sent and uncompressed, so that its size is known without reading it.
alter table onceward.outbox alter column payload set storage external;
alter table onceward.outbox alter column payload_binary set storage external;
create index outbox_xid on onceward.outbox (xid, seq);
-- For asking after an operation: 8 bytes of hash and 8 of address per row.
create index outbox_operation on onceward.outbox
    (pg_catalog.hashtextextended(coalesce(operationid, id) collate "C", 0));

create table onceward.ranges (
    first bigint primary key,
    next bigint not null unique,
    leaf text not null unique,
    closed_at timestamptz,
    -- Every transaction that drew from the range is below this.
    closing_xmax xid8,
    emptied_at timestamptz
);

create table onceward.ledger (
    subscription text not null,
    source text not null,
    type text not null,
    identity text not null,
    generation integer not null default 0,
    recordedtime timestamptz not null,
    digest bytea,
    ending text not null default 'done' check (ending in ('done', 'rejected')),
    result json,
    aggregateversion bigint,
    finished_at timestamptz not null default now(),
    primary key (subscription, source, type, identity, generation, recordedtime)
) partition by range (recordedtime);

create table onceward.operation_ledger (
    subscription text not null,
    source text not null,
    type text not null,
    identity text not null,
    generation integer not null default 0,
    digest bytea,
    ending text not null default 'done' check (ending in ('done', 'rejected')),
    result json,
    aggregateversion bigint,
    finished_at timestamptz not null default now(),
    primary key (subscription, source, type, identity, generation)
);
create index operation_ledger_age on onceward.operation_ledger (finished_at);

create table onceward.subscriptions (
    subscription text primary key,
    lanes integer not null check (lanes between 1 and 1024),
    types text[] not null,
    registered_at timestamptz not null default now()
);

create table onceward.lanes (
    subscription text not null,
    lane integer not null,
    -- Counts every change of owner.
    epoch bigint not null default 0,
    owner text,
    position text not null,
    not_before timestamptz,
    primary key (subscription, lane)
) with (fillfactor = 70);
create index lanes_owner on onceward.lanes (owner) where owner is not null;

-- A member is one start of one process. Fences are keys of advisory locks; they start at the
-- letters "once" in the upper half, away from the keys that applications use.
create sequence onceward.fence_seq as bigint minvalue 8029464471091019777;
create table onceward.members (
    member text primary key,
    fence bigint not null unique default nextval('onceward.fence_seq'),
    description text not null,
    lease_ms bigint not null check (lease_ms > 0),
    subscriptions text[] not null,
    joined_at timestamptz not null default now(),
    ended_at timestamptz,
    ended_cleanly boolean
);
alter sequence onceward.fence_seq owned by onceward.members.fence;

create table onceward.heartbeats (
    revision bigint generated always as identity primary key,
    fence bigint not null,
    beat_at timestamptz not null
);
create index heartbeats_latest on onceward.heartbeats (fence, revision);

create table onceward.positions (
    revision bigint generated always as identity primary key,
    subscription text not null,
    member text not null,
    -- [{"position": ..., "lanes": [[lane, epoch], ...]}, ...]
    spans text not null,
    saved_at timestamptz not null default now()
);
create index positions_latest on onceward.positions (subscription, member, revision);

create table onceward.deferrals (
    subscription text not null,
    seq bigint not null,
    slot smallint not null,
    key text not null,
    kind text not null check (kind in ('retry', 'held', 'running', 'operator')),
    due_at timestamptz,
    failures bigint not null,
    deaths bigint not null,
    waits bigint not null,
    failure text,
    first_deferred_at timestamptz not null,
    primary key (subscription, seq)
);
create index deferrals_key on onceward.deferrals
    (subscription, slot, (pg_catalog.hashtextextended(key collate "C", 0)), seq);
create index deferrals_seq on onceward.deferrals (seq);

create table onceward.cases (
    case_id bigint generated always as identity primary key,
    subscription text not null,
    xid xid8 not null,
    seq bigint not null,
    slot smallint not null,
    id text not null,
    source text,
    aggregatetype text not null,
    aggregateid text not null,
    type text not null,
    operationid text,
    partitionkey text,
    schemaversion integer,
    aggregateversion bigint,
    headers json,
    payload json,
    payload_binary bytea,
    occurred_at timestamptz,
    expires_at timestamptz,
    priority smallint not null,
    recorded_at timestamptz not null,
    reason text not null,
    failure text not null,
    failures bigint not null,
    deaths bigint not null,
    waits bigint not null,
    age_ms bigint not null,
    state text not null default 'open' check (state in ('open')),
    holds_key boolean not null,
    opened_at timestamptz not null,
    first_deferred_at timestamptz,
    unique (subscription, seq)
);
create index cases_holding on onceward.cases (subscription, slot) where holds_key and state = 'open';
create index cases_operation on onceward.cases
    (pg_catalog.hashtextextended(coalesce(operationid, id) collate "C", 0));

create table onceward.acceptances (
    caller text not null,
    key text not null,
    digest bytea not null,
    answer text,
    accepted_at timestamptz not null,
    expires_at timestamptz not null,
    primary key (caller, key)
);
create index acceptances_age on onceward.acceptances (expires_at);

create table onceward.upkeep (
    only_row boolean primary key default true check (only_row),
    made_at timestamptz,
    report text,
    -- For the rate of appending: what the sequence had given out, and when.
    rate_seq bigint not null default 0,
    rate_at timestamptz not null default now(),
    rate_max double precision not null default 0
);
insert into onceward.upkeep default values;
