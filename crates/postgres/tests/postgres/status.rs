//! What is answered while things change.

use onceward_core::store::{
    Begin, Effects as _, End, Log as _, MessageState, NewCase, OperationQuery, SavePosition,
    Settle, Span, Start, Status as _,
};
use onceward_core::{Class, FailureRecord, Identity, Row, Spent};
use onceward_postgres::Postgres;

use crate::support::{
    SUB, append, envelope, execute, join, read, register, session, store, take, until,
};

/// Whether somebody waits for the table of positions.
const WAITS_FOR_POSITIONS: &str = "select exists (select 1 from pg_locks l
    join pg_database d on d.oid = l.database and d.datname = current_database()
    where l.relation = 'onceward.positions'::regclass and not l.granted)";

/// Makes a case of every message and moves the position past it, as an engine does.
async fn quarantine_all(store: &Postgres) {
    let lease = join(store, "worker", 60_000).await;
    let lanes = take(store, &lease).await;
    let origin = lanes[0].stand.position.clone();
    let (rows, next) = read(store, &origin, 10).await;
    let cases: Vec<NewCase> = rows.into_iter().map(case).collect();
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let settle = Settle {
        cases: &cases,
        ..Settle::nothing(SUB, Identity::Message)
    };
    store.settle(&mut tx, settle).await.unwrap();
    store.end(tx, End::Commit).await.unwrap();
    let spans = [Span {
        stand: next.into(),
        lanes: lanes
            .iter()
            .map(|taken| (taken.lane, taken.epoch))
            .collect(),
    }];
    let request = SavePosition {
        member: &lease.member,
        subscription: SUB,
        spans: &spans,
    };
    store.save_position(request).await.unwrap();
}

fn case(row: Row) -> NewCase {
    NewCase {
        key: row.envelope.key().to_owned(),
        row,
        reason: "permanent".to_owned(),
        failure: FailureRecord {
            class: Class::Permanent,
            code: "refused".to_owned(),
            message: "refused".to_owned(),
            detail: None,
        },
        spent: Spent::default(),
        holds_key: false,
    }
}

async fn ask(store: &Postgres) -> MessageState {
    let query = OperationQuery {
        operation: "m1",
        rows_max: 10,
    };
    let mut found = store.operation(query).await.unwrap();
    found.remove(0).subscriptions.remove(0).1
}

/// A message that becomes a case while its state is asked for waits or is a case: it never passes
/// for delivered because the position was looked up after the case was not found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_of_one_moment() {
    let (database, store) = store().await;
    register(&store, Start::Earliest).await;
    append(&store, &[envelope("m1", "k")]).await;
    quarantine_all(&store).await;
    assert!(matches!(
        ask(&store).await,
        MessageState::Quarantined { .. }
    ));
    let mut session = session(&database).await;
    // Back to before, with what happened kept at hand.
    execute(
        &mut session,
        "create table kept_positions as select * from onceward.positions;
         create table kept_cases as select * from onceward.cases;
         delete from onceward.positions; delete from onceward.cases",
    )
    .await;
    assert_eq!(ask(&store).await, MessageState::Pending);
    execute(
        &mut session,
        "begin; lock table onceward.positions in access exclusive mode",
    )
    .await;
    let asked = tokio::spawn({
        let store = store.clone();
        async move { ask(&store).await }
    });
    until(&database, WAITS_FOR_POSITIONS).await;
    execute(
        &mut session,
        "insert into onceward.cases overriding system value select * from kept_cases;
         insert into onceward.positions overriding system value select * from kept_positions;
         commit",
    )
    .await;
    assert_eq!(asked.await.unwrap(), MessageState::Pending);
    assert!(matches!(
        ask(&store).await,
        MessageState::Quarantined { .. }
    ));
}
