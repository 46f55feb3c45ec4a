-- Replay campaigns: a frozen selection, and what became of each message of it.

-- What a subscription promises, as it was declared last (JSON).
alter table onceward.subscriptions add column terms text;

create table onceward.campaigns (
    campaign_id bigint generated always as identity primary key,
    subscription text not null,
    kind text not null check (kind in ('resend', 'rerun')),
    generation integer not null,
    state text not null check (state in (
        'planned', 'canary', 'verifying', 'ramping', 'paused', 'stopped', 'done')),
    -- Whether steps are to be made.
    is_active boolean not null,
    -- Everything about it, as JSON.
    record text not null
);
create index campaigns_active on onceward.campaigns (subscription) where is_active;
create index campaigns_subscription on onceward.campaigns (subscription, campaign_id);

create table onceward.campaign_items (
    campaign_id bigint not null references onceward.campaigns (campaign_id),
    seq bigint not null,
    subscription text not null,
    id text not null,
    type text not null,
    key text not null,
    recorded_at timestamptz not null,
    case_id bigint,
    generation integer not null,
    state text not null check (state in (
        'planned', 'running', 'done', 'failed', 'refused', 'left')),
    finding text,
    note text,
    started_at timestamptz,
    ended_at timestamptz,
    primary key (campaign_id, seq)
);
-- Two campaigns never have one message.
create unique index campaign_items_once on onceward.campaign_items (subscription, seq)
    where state in ('planned', 'running');
create index campaign_items_planned on onceward.campaign_items (campaign_id, seq)
    where state = 'planned';
create index campaign_items_running on onceward.campaign_items (campaign_id, seq)
    where state = 'running';
-- What the log and the ledger have to keep for them.
create index campaign_items_pins on onceward.campaign_items (seq)
    where state in ('planned', 'running') and case_id is null;
-- The generation of a message that was made to run once more.
create index campaign_items_reruns on onceward.campaign_items (subscription, seq)
    where generation > 0 and started_at is not null;

-- What a campaign does by itself, for the audit log: whoever runs subscriptions may take campaigns
-- on that an operator started, and nothing else that is recorded there.
create function onceward.record_of_campaign(
    of_campaign bigint, acted_at timestamptz, who text, action text, subscription text,
    case_id bigint, why text, before json, after json) returns void
    language plpgsql volatile security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform 1 from onceward.campaigns c
    where c.campaign_id = of_campaign and c.subscription = record_of_campaign.subscription
      and c.state <> 'planned';
    if not found then
        raise exception using errcode = 'insufficient_privilege',
            message = 'no campaign of this subscription with that number was started';
    end if;
    insert into onceward.audit (acted_at, who, action, subscription, case_id, why, before, after)
    values (record_of_campaign.acted_at, record_of_campaign.who, record_of_campaign.action,
        record_of_campaign.subscription, record_of_campaign.case_id, record_of_campaign.why,
        record_of_campaign.before, record_of_campaign.after);
end
$$;
revoke all on function onceward.record_of_campaign(
    bigint, timestamptz, text, text, text, bigint, text, json, json) from public;
