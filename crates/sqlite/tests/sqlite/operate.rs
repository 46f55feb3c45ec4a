//! What operators do, where SQLite is particular: a table made anew, and triggers in the place of
//! rights.

use onceward_core::case::fingerprint;
use onceward_core::store::{
    ActOnCase, Actor, CaseAction, CaseQuery, CaseState, Cases as _, HistoryQuery, Operate as _,
    Schema as _, SchemaState,
};
use onceward_core::{Class, FailureRecord};
use onceward_sqlite::Sqlite;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _};

/// Cases of version 1 are there after the migration, live, with what they are known by; and the
/// audit log takes nothing but new rows.
#[tokio::test]
async fn cases_of_before_are_kept_and_their_numbers_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders.db");
    let options = SqliteConnectOptions::new()
        .filename(&path)
        .create_if_missing(true);
    let mut connection = options.connect().await.unwrap();
    let failure = FailureRecord {
        class: Class::Permanent,
        code: "refused".to_owned(),
        message: "refused".to_owned(),
        detail: None,
    };
    let text = serde_json::to_string(&failure).unwrap();
    let insert = |seq: u32| {
        format!(
            "INSERT INTO onceward_case (subscription, holds_key, reason, failure, failures, deaths,
                waits, age_ms, opened_at, slot, key, seq, id, aggregatetype, aggregateid, type,
                priority, recorded_at, payload)
             VALUES ('ship', 1, 'permanent', '{text}', 1, 0, 0, 0, 5, 7, 'k', {seq}, 'm{seq}',
                'order', 'k', 'order.accepted', 0, 4, '1')"
        )
    };
    for script in [
        include_str!("../../sql/schema/create_versions.sql").to_owned(),
        include_str!("../../migrations/0001_tables.sql").to_owned(),
        "INSERT INTO onceward_schema VALUES (1, 'tables', 0)".to_owned(),
        "INSERT INTO onceward_meta VALUES (1, 'urn:x')".to_owned(),
        insert(1),
        insert(2),
        insert(3),
        "DELETE FROM onceward_case WHERE case_id = 3".to_owned(),
    ] {
        let done = sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut connection);
        done.await.unwrap();
    }
    let store = Sqlite::connect(path.to_string_lossy()).await.unwrap();
    let behind = store.schema_state().await.unwrap();
    assert!(
        matches!(behind, SchemaState::Behind { version: 1, .. }),
        "{behind:?}"
    );
    store.migrate().await.unwrap();
    let cases = store.cases(CaseQuery::default()).await.unwrap();
    let numbers: Vec<i64> = cases.iter().map(|case| case.case_id).collect();
    assert_eq!(numbers, [1, 2]);
    let print = fingerprint("ship", "order.accepted", &failure);
    for case in &cases {
        assert_eq!(
            (&case.fingerprint, case.opened_at),
            (&print, case.first_opened_at)
        );
        assert_eq!(case.standing.state, CaseState::Open);
    }
    // The third is never given out again.
    let next = insert(4).replace(", payload)", ", payload, first_opened_at)");
    let next = next.replace(", '1')", ", '1', 5)");
    let done = sqlx::raw_sql(AssertSqlSafe(next)).execute(&mut connection);
    assert_eq!(done.await.unwrap().last_insert_rowid(), 4);
    let request = ActOnCase {
        case_id: 2,
        action: CaseAction::Release,
        expected: None,
        by: Actor {
            who: "ada",
            why: None,
        },
    };
    store.act_on_case(request).await.unwrap();
    for sql in [
        "UPDATE onceward_audit SET who = 'nobody'",
        "DELETE FROM onceward_audit",
    ] {
        let refused = sqlx::raw_sql(sql).execute(&mut connection).await;
        assert!(refused.is_err(), "{sql}");
    }
    let history = store.history(HistoryQuery::default()).await.unwrap();
    assert_eq!(history.len(), 1);
    assert_eq!(history[0].who, "ada");
}
