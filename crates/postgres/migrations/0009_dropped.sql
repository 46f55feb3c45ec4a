-- Messages that a policy gave up: merged into a later one of their key, or shed under load.

alter table onceward.ledger
    drop constraint ledger_ending_check,
    -- What is there keeps the narrower rule: it is not read again.
    add constraint ledger_ending_check
        check (ending in ('done', 'rejected', 'expired', 'superseded', 'merged', 'shed')) not valid;
alter table onceward.operation_ledger
    drop constraint operation_ledger_ending_check,
    add constraint operation_ledger_ending_check
        check (ending in ('done', 'rejected', 'expired', 'superseded', 'merged', 'shed')) not valid;

-- Only rows of messages that were given up are in these, in the order in which they are listed.
create index ledger_dropped on onceward.ledger (
    subscription, ending, finished_at, (source collate "C"), (type collate "C"),
    (identity collate "C"), generation)
    where ending in ('expired', 'merged', 'shed');
create index operation_ledger_dropped on onceward.operation_ledger (
    subscription, ending, finished_at, (source collate "C"), (type collate "C"),
    (identity collate "C"), generation)
    where ending in ('expired', 'merged', 'shed');
