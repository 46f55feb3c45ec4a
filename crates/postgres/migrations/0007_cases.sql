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

-- What a list is asked for, each with the numbers by which it is paged. Keys and types may be of any
-- length, which an index over their hashes does not mind.
drop index onceward.cases_fingerprint;
create index cases_cause on onceward.cases (fingerprint, state, case_id);
create index cases_cause_last on onceward.cases (fingerprint, opened_at);
create index cases_subscription on onceward.cases (subscription, state, case_id);
create index cases_state on onceward.cases (state, case_id);
create index cases_owner on onceward.cases (owner, state, case_id) where owner is not null;
create index cases_type on onceward.cases
    (pg_catalog.hashtextextended(type collate "C", 0), state, case_id);
create index cases_key on onceward.cases
    (pg_catalog.hashtextextended(coalesce(partitionkey, aggregateid) collate "C", 0), case_id);
create index cases_opened on onceward.cases (opened_at, case_id, state, subscription);

-- How many cases each cause has, as a sum of rows: those who open and end cases add one and never wait
-- for one another. Upkeep adds them up.
create table onceward.case_tallies (
    tally_id bigint generated always as identity primary key,
    fingerprint text not null,
    live bigint not null,
    total bigint not null
);

create function onceward.is_live_case(of_state text) returns boolean
    language sql immutable parallel safe
    return of_state in ('open', 'acknowledged', 'corrected');

create function onceward.tally_case() returns trigger
    language plpgsql
    as $$
begin
    if tg_op <> 'INSERT' and old.fingerprint is not null then
        insert into onceward.case_tallies (fingerprint, live, total)
        values (old.fingerprint, -onceward.is_live_case(old.state)::integer, -1);
    end if;
    if tg_op <> 'DELETE' and new.fingerprint is not null then
        insert into onceward.case_tallies (fingerprint, live, total)
        values (new.fingerprint, onceward.is_live_case(new.state)::integer, 1);
    end if;
    return null;
end
$$;
create trigger cases_are_counted after insert or delete on onceward.cases
    for each row execute function onceward.tally_case();
create trigger cases_stay_counted after update on onceward.cases
    for each row
    when (old.fingerprint is distinct from new.fingerprint
          or onceward.is_live_case(old.state) <> onceward.is_live_case(new.state))
    execute function onceward.tally_case();

insert into onceward.case_tallies (fingerprint, live, total)
select c.fingerprint, count(*) filter (where onceward.is_live_case(c.state)), count(*)
from onceward.cases c
where c.fingerprint is not null
group by c.fingerprint;

-- How much may run at once, where an operator says that it be less than declared.
alter table onceward.subscriptions add column concurrency_max integer
    check (concurrency_max between 1 and 65535);
