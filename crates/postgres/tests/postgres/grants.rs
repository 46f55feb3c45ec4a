//! What each role may do.

use onceward_core::store::StoreErrorKind;
use onceward_postgres::grants_sql;
use sqlx::PgConnection;

use crate::support::{execute, session, store};

/// Runs a statement as a role and returns the SQLSTATE of its refusal, if it was refused.
async fn attempt(connection: &mut PgConnection, role: &str, sql: &str) -> Option<String> {
    let script = format!("begin; set local role {role}; {sql}; rollback");
    let done = sqlx::raw_sql(sqlx::AssertSqlSafe(script))
        .execute(&mut *connection)
        .await;
    let code = done.err().map(|error| {
        error
            .as_database_error()
            .and_then(|e| e.code().map(|c| c.into_owned()))
            .unwrap()
    });
    execute(connection, "rollback").await;
    code
}

#[tokio::test]
async fn roles_can_do_their_work_and_nothing_else() {
    let (database, store) = store().await;
    let mut connection = session(&database).await;
    for _ in 0..2 {
        execute(&mut connection, grants_sql()).await;
    }
    let denied = Some("42501".to_owned());
    let five = "insert into onceward.outbox (id, aggregatetype, aggregateid, type, payload)
        values ('m', 'order', 'o', 't', '1')";
    let producer = "onceward_producer";
    assert_eq!(attempt(&mut connection, producer, five).await, None);
    for (column, value) in [
        ("xid", "'1'"),
        ("seq", "1"),
        ("slot", "1"),
        ("recorded_at", "now()"),
    ] {
        let forged = format!(
            "insert into onceward.outbox (id, aggregatetype, aggregateid, type, payload, {column})
             values ('m', 'order', 'o', 't', '1', {value})"
        );
        let code = attempt(&mut connection, producer, &forged).await;
        // The generated slot is refused to everybody, before anybody's rights are looked at.
        let expected = if column == "slot" {
            Some("428C9".to_owned())
        } else {
            denied.clone()
        };
        assert_eq!(code, expected, "{column} can be forged");
    }
    for sql in [
        "select * from onceward.outbox",
        "update onceward.outbox set payload = '2'",
        "delete from onceward.outbox",
        "truncate onceward.outbox",
        "select setval('onceward.outbox_seq', 1)",
        "select * from onceward.ledger",
        "update onceward.meta set era = 9",
    ] {
        assert_eq!(
            attempt(&mut connection, producer, sql).await,
            denied,
            "{sql}"
        );
    }
    let record =
        "insert into onceward.ledger (subscription, source, type, identity, recordedtime, result)
        values ('s', 'urn:x', 't', 'i', now(), '{}') on conflict do nothing";
    for sql in [
        five,
        record,
        "select * from onceward.outbox",
        "select last_value from onceward.outbox_seq",
    ] {
        assert_eq!(
            attempt(&mut connection, "onceward_worker", sql).await,
            None,
            "{sql}"
        );
    }
    let auditor = "onceward_auditor";
    assert_eq!(
        attempt(
            &mut connection,
            auditor,
            "select id, type from onceward.outbox"
        )
        .await,
        None
    );
    for sql in [
        "select payload from onceward.outbox",
        "select result from onceward.ledger",
        "select failure from onceward.cases",
        "select answer from onceward.acceptances",
        "update onceward.cases set state = 'open'",
        "insert into onceward.audit (acted_at, who, action, subscription, before, after)
            values (now(), 'x', 'x', 'x', '{}', '{}')",
    ] {
        assert_eq!(
            attempt(&mut connection, auditor, sql).await,
            denied,
            "{sql}"
        );
    }
    let error = sqlx::raw_sql("set role onceward_producer; select * from onceward.outbox");
    let error = error.execute(&mut connection).await.unwrap_err();
    let kind = onceward_core::store::Append::classify(&store, &error);
    assert_eq!(kind, Some(StoreErrorKind::Denied));
}

/// A worker's whole day with the worker's rights alone.
#[tokio::test]
async fn a_worker_needs_no_more_than_its_role() {
    use onceward_core::store::{
        Begin, Effects, End, Lanes, Log, SavePosition, Span, Start, Status,
    };
    let (database, owner) = store().await;
    let mut connection = session(&database).await;
    execute(&mut connection, grants_sql()).await;
    crate::support::register(&owner, Start::Earliest).await;
    let options: sqlx::postgres::PgConnectOptions = database.url().parse().unwrap();
    let pool = sqlx::PgPool::connect_lazy_with(options.options([("role", "onceward_worker")]));
    let store = onceward_postgres::Postgres::from_pool(pool);
    let lease = crate::support::join(&store, "w", 60_000).await;
    let taken = crate::support::take(&store, &lease).await;
    let mut tx = store
        .begin(Begin {
            lease: Some(&lease),
        })
        .await
        .unwrap();
    let message = crate::support::envelope("m", "k");
    let settle = onceward_core::store::Settle {
        append: &[message],
        ..onceward_core::store::Settle::nothing("ship", onceward_core::Identity::Message)
    };
    store.settle(&mut tx, settle).await.unwrap();
    store.end(tx, End::Commit).await.unwrap();
    let (rows, next) = crate::support::read(&store, &taken[0].stand.position, 10).await;
    assert_eq!(rows.len(), 1);
    let spans = [Span {
        stand: next.into(),
        lanes: vec![(0, taken[0].epoch)],
    }];
    let request = SavePosition {
        member: "w",
        subscription: "ship",
        spans: &spans,
    };
    store.save_position(request).await.unwrap();
    let question = onceward_core::store::BacklogQuery {
        subscription: "ship",
        count_max: 10,
        before: None,
    };
    store.backlog(question).await.unwrap();
    store.leave(&lease).await.unwrap();
}
