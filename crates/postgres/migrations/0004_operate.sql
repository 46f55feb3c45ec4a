-- What operators do: cases with an owner and a state, pauses, and a log of who did what.

alter table onceward.cases
    add column key text,
    add column fingerprint text,
    add column owner text,
    add column due_at timestamptz,
    add column first_opened_at timestamptz,
    add column replays integer not null default 0,
    add column regressions integer not null default 0,
    drop constraint cases_state_check,
    add constraint cases_state_check check (
        state in ('open', 'acknowledged', 'corrected', 'replayed', 'discarded', 'waived'));
update onceward.cases
set key = coalesce(partitionkey, aggregateid), first_opened_at = opened_at;
alter table onceward.cases
    alter column key set not null,
    alter column first_opened_at set not null;

drop index onceward.cases_holding;
create index cases_holding on onceward.cases (subscription, slot)
    where holds_key and state in ('open', 'acknowledged');
create index cases_live on onceward.cases (case_id) where state in ('open', 'acknowledged');
create index cases_fingerprint on onceward.cases (fingerprint);

-- Raised by every action that changes what may run: whoever works on the subscription looks again.
alter table onceward.subscriptions add column revision bigint not null default 0;

create table onceward.pauses (
    pause_id bigint generated always as identity primary key,
    subscription text not null,
    paused_at timestamptz not null,
    resumed_at timestamptz
);
create index pauses_subscription on onceward.pauses (subscription, resumed_at);
create unique index pauses_open on onceward.pauses (subscription) where resumed_at is null;

-- How much of the time between two moments a subscription was paused.
create function onceward.paused_between(of_subscription text, since timestamptz, until timestamptz)
    returns interval
    language sql stable parallel safe
    return (
        select coalesce(sum(
            greatest(interval '0',
                least(coalesce(p.resumed_at, until), until) - greatest(p.paused_at, since))),
            interval '0')
        from onceward.pauses p
        where p.subscription = of_subscription
          and (p.resumed_at is null or p.resumed_at > since)
    );

-- Who did what, when, to what, and why. Rows are added and never changed.
create table onceward.audit (
    audit_id bigint generated always as identity primary key,
    acted_at timestamptz not null,
    who text not null check (octet_length(who) between 1 and 200),
    action text not null,
    subscription text not null,
    case_id bigint,
    why text check (octet_length(why) <= 4000),
    before json not null,
    after json not null
);
create index audit_case on onceward.audit (case_id, audit_id) where case_id is not null;
create index audit_subscription on onceward.audit (subscription, audit_id);

create function onceward.refuse_change() returns trigger
    language plpgsql
    as $$
begin
    raise exception 'rows of the audit log are added and never changed'
        using errcode = 'insufficient_privilege';
end
$$;
create trigger audit_is_kept before update or delete or truncate on onceward.audit
    for each statement execute function onceward.refuse_change();
