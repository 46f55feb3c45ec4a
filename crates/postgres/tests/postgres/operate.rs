//! What operators do, where PostgreSQL is particular: rights, the audit log, tables of before.

use onceward_core::case::fingerprint;
use onceward_core::store::{
    ActOnCase, Actor, CaseAction, CaseQuery, CaseState, Cases as _, Deferrals as _, GroupQuery,
    HistoryQuery, Lanes as _, LoadKey, NewCase, Operate as _, ResumeDeferred, Retention,
    Schema as _, SchemaState, SetPause, Settle, Start, StoreErrorKind, Upkeep as _,
};
use onceward_core::store::{Begin, Effects as _, End};
use onceward_core::{Class, FailureRecord, Identity, Position, Row, Spent};
use onceward_postgres::{Postgres, grants_sql};
use onceward_testkit::postgres::TestDatabase;

use crate::support::{SUB, append, envelope, execute, read, register, session, store};

const BY: Actor<'static> = Actor {
    who: "ada",
    why: Some("tested"),
};

fn failure() -> FailureRecord {
    FailureRecord {
        class: Class::Permanent,
        code: "refused".to_owned(),
        message: "refused".to_owned(),
        detail: None,
    }
}

pub(crate) async fn open_case(store: &Postgres, row: &Row) -> i64 {
    let case = NewCase {
        key: row.envelope.key().to_owned(),
        row: row.clone(),
        reason: "permanent".to_owned(),
        failure: failure(),
        spent: Spent::default(),
        holds_key: true,
    };
    let settle = Settle {
        cases: &[case],
        ..Settle::nothing(SUB, Identity::Message)
    };
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    store.settle(&mut tx, settle).await.unwrap();
    store.end(tx, End::Commit).await.unwrap();
    let cases = store.cases(CaseQuery::default()).await.unwrap();
    cases.last().unwrap().case_id
}

const fn release(case_id: i64) -> ActOnCase<'static> {
    ActOnCase {
        case_id,
        action: CaseAction::Release,
        expected: None,
        by: BY,
    }
}

pub(crate) async fn as_role(database: &TestDatabase, role: &str) -> Postgres {
    let options: sqlx::postgres::PgConnectOptions = database.url().parse().unwrap();
    let pool = sqlx::PgPool::connect_lazy_with(options.options([("role", role)]));
    Postgres::from_pool(pool)
}

/// Everything that an operator does, with the operator's rights; an auditor reads who did it.
#[tokio::test]
async fn an_operator_needs_no_more_than_its_role() {
    let (database, owner) = store().await;
    let mut connection = session(&database).await;
    execute(&mut connection, grants_sql()).await;
    register(&owner, Start::Earliest).await;
    let keys = ["k1", "k2", "k3"];
    append(&owner, &keys.map(|key| envelope(key, key))).await;
    let (rows, _) = read(&owner, &Position::origin(1), 10).await;
    let first = open_case(&owner, &rows[0]).await;
    let second = open_case(&owner, &rows[1]).await;
    let third = open_case(&owner, &rows[2]).await;
    let store = as_role(&database, "onceward_operator").await;
    for action in [
        CaseAction::Assign { owner: Some("bo") },
        CaseAction::Acknowledge,
        CaseAction::Note,
        CaseAction::SetDue { due_at: None },
        CaseAction::Release,
    ] {
        let request = ActOnCase {
            action,
            ..release(first)
        };
        store.act_on_case(request).await.unwrap();
    }
    let request = ActOnCase {
        action: CaseAction::Discard,
        ..release(second)
    };
    store.act_on_case(request).await.unwrap();
    for is_paused in [true, false] {
        let request = SetPause {
            subscription: SUB,
            is_paused,
            by: BY,
        };
        store.set_pause(request).await.unwrap();
    }
    let resume = ResumeDeferred {
        subscription: SUB,
        key: None,
        by: BY,
    };
    assert_eq!(store.resume_deferred(resume).await.unwrap(), 0);
    let auditor = as_role(&database, "onceward_auditor").await;
    let history = auditor.history(HistoryQuery::default()).await.unwrap();
    assert_eq!(history.len(), 8);
    let denied = auditor.act_on_case(release(third)).await.unwrap_err();
    assert_eq!(denied.kind(), StoreErrorKind::Denied);
    let worker = as_role(&database, "onceward_worker").await;
    let denied = worker.act_on_case(release(third)).await.unwrap_err();
    assert_eq!(denied.kind(), StoreErrorKind::Denied);
    assert_eq!(worker.survey().await.unwrap().subscriptions.len(), 1);
}

/// Nor empties it, not even the owner of the tables.
#[tokio::test]
async fn nobody_changes_the_audit_log() {
    let (database, store) = store().await;
    register(&store, Start::Earliest).await;
    append(&store, &[envelope("m1", "k1")]).await;
    let (rows, _) = read(&store, &Position::origin(1), 10).await;
    let case_id = open_case(&store, &rows[0]).await;
    store.act_on_case(release(case_id)).await.unwrap();
    let before = store.history(HistoryQuery::default()).await.unwrap();
    assert_eq!(before.len(), 1);
    let mut connection = session(&database).await;
    for sql in [
        "update onceward.audit set who = 'nobody'",
        "delete from onceward.audit",
        "truncate onceward.audit",
    ] {
        let refused = sqlx::raw_sql(sql).execute(&mut connection).await;
        assert!(refused.is_err(), "{sql}");
    }
    let after = store.history(HistoryQuery::default()).await.unwrap();
    assert_eq!(before, after);
}

/// Its partition was emptied: it comes from the case's copy.
#[tokio::test]
async fn a_released_message_outlives_its_partition() {
    let (database, store) = store().await;
    register(&store, Start::Earliest).await;
    append(&store, &[envelope("m1", "k1")]).await;
    let (rows, _) = read(&store, &Position::origin(1), 10).await;
    let case_id = open_case(&store, &rows[0]).await;
    database.psql("truncate onceward.outbox").await;
    store.act_on_case(release(case_id)).await.unwrap();
    let request = LoadKey {
        subscription: SUB,
        slot: rows[0].slot,
        key: "k1",
        after_seq: 0,
        versions_to: None,
        rows_max: 10,
    };
    let loaded = store.load_key(request).await.unwrap();
    assert_eq!(loaded.len(), 1);
    assert_eq!(loaded[0].row, rows[0]);
    assert!(loaded[0].is_released());
}

/// A case of version 3 is there after the migration, live, with what it is known by.
#[tokio::test]
async fn cases_of_before_are_kept_and_get_their_fingerprint() {
    let database = TestDatabase::lease().await;
    let mut connection = session(&database).await;
    for script in [
        include_str!("../../migrations/0000_versions.sql"),
        include_str!("../../migrations/0001_base.sql"),
        include_str!("../../migrations/0002_functions.sql"),
        include_str!("../../migrations/0003_room.sql"),
        "insert into onceward.migrations (version, name) select n, 'old' from generate_series(1, 3) n",
    ] {
        execute(&mut connection, script).await;
    }
    let failure_text = serde_json::to_string(&failure()).unwrap();
    let insert = format!(
        "insert into onceward.cases (subscription, xid, seq, slot, id, aggregatetype, aggregateid,
            type, payload, priority, recorded_at, reason, failure, failures, deaths, waits, age_ms,
            holds_key, opened_at)
         values ('ship', '7', 1, 5, 'm1', 'order', 'k1', 'order.accepted', '1', 0, now(),
            'permanent', '{failure_text}', 1, 0, 0, 0, true, now())"
    );
    execute(&mut connection, insert).await;
    let store = Postgres::connect(database.url()).await.unwrap();
    let behind = store.schema_state().await.unwrap();
    assert!(
        matches!(behind, SchemaState::Behind { version: 3, .. }),
        "{behind:?}"
    );
    store.migrate().await.unwrap();
    let cases = store.cases(CaseQuery::default()).await.unwrap();
    assert_eq!(cases.len(), 1);
    let case = &cases[0];
    assert_eq!(case.key, "k1");
    assert_eq!(case.first_opened_at, case.opened_at);
    assert_eq!(
        case.fingerprint,
        fingerprint("ship", "order.accepted", &failure())
    );
    let after = store.act_on_case(release(case.case_id)).await.unwrap();
    assert_eq!(after.state, CaseState::Replayed);
}

/// Cases are counted by rows that nobody waits for; upkeep adds them up, and nothing is miscounted.
#[tokio::test]
async fn tallies_of_cases_are_added_up() {
    const CASES: usize = 1_200;
    let (database, store) = store().await;
    register(&store, Start::Earliest).await;
    let envelopes: Vec<_> = (0..CASES)
        .map(|n| envelope(&format!("m{n}"), &format!("k{n}")))
        .collect();
    append(&store, &envelopes).await;
    let (rows, _) = read(&store, &Position::origin(1), CASES as u32).await;
    let cases: Vec<NewCase> = rows
        .iter()
        .map(|row| NewCase {
            key: row.envelope.key().to_owned(),
            row: row.clone(),
            reason: "permanent".to_owned(),
            failure: failure(),
            spent: Spent::default(),
            holds_key: false,
        })
        .collect();
    let settle = Settle {
        cases: &cases,
        ..Settle::nothing(SUB, Identity::Message)
    };
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    store.settle(&mut tx, settle).await.unwrap();
    store.end(tx, End::Commit).await.unwrap();
    let first = store.cases(CaseQuery::default()).await.unwrap()[0].case_id;
    store.act_on_case(release(first)).await.unwrap();
    let groups = || async {
        let groups = store.case_groups(GroupQuery::default()).await.unwrap();
        groups.iter().map(|g| (g.live, g.all)).collect::<Vec<_>>()
    };
    let expected = [(CASES as u64 - 1, CASES as u64)];
    assert_eq!(groups().await, expected);
    store.tidy(Retention::default()).await.unwrap();
    assert_eq!(groups().await, expected);
    let left = "select count(*) from onceward.case_tallies";
    assert_eq!(database.psql(left).await.trim(), "1");
    store.act_on_case(release(first + 1)).await.unwrap();
    assert_eq!(groups().await, [(CASES as u64 - 2, CASES as u64)]);
}
