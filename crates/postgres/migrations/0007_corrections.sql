-- Messages that take the place of one that could not be handled. Rows are added and never changed:
-- the case names the one that counts.

create table onceward.corrections (
    case_id bigint not null,
    id text not null,
    payload json,
    payload_binary bytea,
    corrected_at timestamptz not null,
    primary key (case_id, id),
    check (num_nonnulls(payload, payload_binary) = 1)
);

alter table onceward.cases add column corrected_id text;

-- A corrected case waits to be released: it is not over.
drop index onceward.cases_holding;
create index cases_holding on onceward.cases (subscription, slot)
    where holds_key and state in ('open', 'acknowledged', 'corrected');
drop index onceward.cases_live;
create index cases_live on onceward.cases (case_id)
    where state in ('open', 'acknowledged', 'corrected');
