-- Our own schema and our own version table: an application's migrations never meet them.
create schema if not exists onceward;
create table onceward.migrations (
    version integer primary key,
    name text not null,
    applied_at timestamptz not null default now()
);
