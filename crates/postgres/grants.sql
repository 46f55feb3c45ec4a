-- Roles with the least they need. Run as the owner of the tables; repeat it after a migration.
--   onceward_producer  appends; the engine's own columns cannot be forged
--   onceward_worker    runs subscriptions
--   onceward_operator  reads everything, acts on cases and subscriptions, and may start upkeep where
--                      it is the owner's member
--   onceward_auditor   reads states and the audit log, no payloads and no results
do $$
declare
    role text;
begin
    foreach role in array array[
        'onceward_producer', 'onceward_worker', 'onceward_operator', 'onceward_auditor'
    ] loop
        if not exists (select 1 from pg_catalog.pg_roles r where r.rolname = role) then
            execute format('create role %I nologin', role);
        end if;
    end loop;
end
$$;

grant usage on schema onceward
    to onceward_producer, onceward_worker, onceward_operator, onceward_auditor;
grant onceward_producer to onceward_worker;

-- Producer: one insert, and acceptance records beside it.
grant insert (id, source, aggregatetype, aggregateid, type, operationid, partitionkey,
    schemaversion, aggregateversion, headers, payload, payload_binary,
    occurred_at, expires_at, priority) on onceward.outbox to onceward_producer;
grant usage on sequence onceward.outbox_seq to onceward_producer;
grant select, insert, update on onceward.acceptances to onceward_producer;

-- Worker: reads the log, writes the ledger and its own records.
grant select on all tables in schema onceward to onceward_worker, onceward_operator;
grant select on sequence onceward.outbox_seq to onceward_worker, onceward_operator;
grant insert on onceward.ledger, onceward.operation_ledger to onceward_worker;
grant insert, update, delete on onceward.deferrals to onceward_worker;
grant insert, update on onceward.cases, onceward.lanes, onceward.members,
    onceward.subscriptions to onceward_worker;
grant update on onceward.campaigns, onceward.campaign_items to onceward_worker;
grant insert (subscription, paused_at, resumed_at, because, until_at),
    update (resumed_at, because, until_at) on onceward.pauses to onceward_worker;
grant execute on function onceward.record_of_campaign(
    bigint, timestamptz, text, text, text, bigint, text, json, json)
    to onceward_worker, onceward_operator;
grant insert on onceward.heartbeats, onceward.positions, onceward.case_tallies to onceward_worker;
grant usage on sequence onceward.fence_seq to onceward_worker;

-- Operator: acts, and every action leaves a row in the audit log, which nobody may change.
grant update (state, owner, due_at, replays, corrected_id) on onceward.cases to onceward_operator;
grant delete on onceward.cases, onceward.corrections to onceward_operator;
grant insert, update on onceward.deferrals to onceward_operator;
grant update (revision, concurrency_max, rate_per_second, rate_burst) on onceward.subscriptions to onceward_operator;
grant insert, update (resumed_at) on onceward.pauses to onceward_operator;
grant insert on onceward.audit, onceward.corrections, onceward.case_tallies to onceward_operator;
grant insert, update on onceward.campaigns, onceward.campaign_items to onceward_operator;

-- Auditor: who, what and when, but no content.
grant select (seq, slot, id, source, aggregatetype, aggregateid, type, operationid, partitionkey,
    schemaversion, aggregateversion, occurred_at, expires_at, priority, recorded_at)
    on onceward.outbox to onceward_auditor;
grant select (subscription, source, type, identity, generation, recordedtime, ending, finished_at)
    on onceward.ledger to onceward_auditor;
grant select (subscription, source, type, identity, generation, ending, finished_at)
    on onceward.operation_ledger to onceward_auditor;
grant select (case_id, subscription, seq, id, source, aggregatetype, aggregateid, type, operationid,
    recorded_at, reason, failures, deaths, waits, state, holds_key, opened_at, first_deferred_at,
    key, fingerprint, owner, due_at, first_opened_at, replays, regressions, corrected_id)
    on onceward.cases to onceward_auditor;
grant select (case_id, id, corrected_at) on onceward.corrections to onceward_auditor;
grant select on onceward.migrations, onceward.meta, onceward.eras, onceward.subscriptions,
    onceward.lanes, onceward.members, onceward.ranges, onceward.upkeep, onceward.pauses,
    onceward.campaigns, onceward.campaign_items, onceward.audit to onceward_auditor;
