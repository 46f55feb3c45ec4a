-- Order and value: the versions of aggregates that the ledger knows of, messages that wait for one,
-- and messages that ended because they had become useless.

alter table onceward.ledger
    add column aggregatetype text,
    add column aggregateid text,
    drop constraint ledger_ending_check,
    -- What is there keeps the narrower rule: it is not read again.
    add constraint ledger_ending_check
        check (ending in ('done', 'rejected', 'expired', 'superseded')) not valid;
alter table onceward.operation_ledger
    add column aggregatetype text,
    add column aggregateid text,
    drop constraint operation_ledger_ending_check,
    add constraint operation_ledger_ending_check
        check (ending in ('done', 'rejected', 'expired', 'superseded')) not valid;

-- Only rows of subscriptions that check versions are in it.
create index ledger_version on onceward.ledger
    (subscription, (pg_catalog.hashtextextended(aggregateid collate "C", 0)), aggregateversion)
    where aggregateid is not null;
create index operation_ledger_version on onceward.operation_ledger
    (subscription, (pg_catalog.hashtextextended(aggregateid collate "C", 0)), aggregateversion)
    where aggregateid is not null;

alter table onceward.deferrals
    drop constraint deferrals_kind_check,
    add constraint deferrals_kind_check
        check (kind in ('retry', 'held', 'running', 'operator', 'gap')) not valid;
