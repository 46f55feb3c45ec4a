//! The store is away or takes something in no form: nothing is lost, and nothing is let by.

use super::*;

/// Holds the file as another writer would.
async fn blocked(store: &Sqlite) -> sqlx::Transaction<'static, sqlx::Sqlite> {
    store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap()
}

async fn run(store: &Sqlite, statement: &'static str) {
    sqlx::query(statement).execute(store.pool()).await.unwrap();
}

async fn has_asked_for_time(subscriber: &Troubled) {
    until("more time was asked for", || async {
        subscriber.extended.load(Ordering::SeqCst) >= 2
    })
    .await;
}

/// BC-32, BC-35: the lease is lost meanwhile, what was received given back, and the engine lives on.
#[tokio::test]
async fn a_database_that_is_away_for_longer_than_a_lease_ends_nothing() {
    let (_folder, store) = sqlite().await;
    let fixture = MemoryFixture::new();
    let subscriber = Troubled::new(&fixture).await;
    let taking = intake(subscriber.clone(), |o| o.extend_every_ms = 100);
    let engine = start(&store, taking, things()).await;
    until("it takes in", || async { state(&engine).is_taking }).await;
    let blocker = blocked(&store).await;
    publish(&fixture, &many(9)).await;
    has_asked_for_time(&subscriber).await;
    until("the lease is given up", || async {
        engine.state().leases_lost > 0
    })
    .await;
    until("it takes in no more", || async {
        !state(&engine).is_taking
    })
    .await;
    assert_eq!(left_at_broker(&fixture).await, 9);
    // As the connection of whoever looked ends.
    fixture.subscriber().await.give_back().await;
    blocker.rollback().await.unwrap();
    until("all have had their effect", || async {
        effects(&store).await.len() >= 9
    })
    .await;
    idle(&store, "things").await;
    assert_each_once(&effects(&store).await, 9);
    stop(engine).await;
}

/// Nothing was acknowledged, and nothing stays with a process that has ended.
#[tokio::test]
async fn stopping_while_the_database_is_away_gives_everything_back() {
    let (_folder, store) = sqlite().await;
    let fixture = MemoryFixture::new();
    let subscriber = Troubled::new(&fixture).await;
    let taking = intake(subscriber.clone(), |o| o.extend_every_ms = 100);
    let engine = start(&store, taking, things()).await;
    until("it takes in", || async { state(&engine).is_taking }).await;
    let blocker = blocked(&store).await;
    publish(&fixture, &many(9)).await;
    has_asked_for_time(&subscriber).await;
    let mut watched = engine.watch();
    engine.shutdown(Duration::from_millis(300)).await;
    let taken = watched.borrow_and_update().intakes["orders"].taken;
    assert_eq!((taken, left_at_broker(&fixture).await), (0, 9));
    drop(blocker);
}

/// The work of the engine goes on, and so does the intake in the end.
#[tokio::test]
async fn a_receiver_that_panics_does_not_end_the_engine() {
    let (_folder, store) = sqlite().await;
    let fixture = MemoryFixture::new();
    let subscriber = Troubled::new(&fixture).await;
    publish(&fixture, &many(3)).await;
    subscriber.panics.store(true, Ordering::SeqCst);
    let engine = start(&store, intake(subscriber, |_| ()), things()).await;
    until("it is told", || async {
        let trouble = state(&engine).trouble;
        trouble.is_some_and(|text| text.contains("panicked"))
    })
    .await;
    until("all have had their effect", || async {
        effects(&store).await.len() == 3
    })
    .await;
    assert_eq!(engine.state().leases_lost, 0);
    stop(engine).await;
}

/// Each message of a transaction costs a lock in PostgreSQL, which has room for some thousands.
#[tokio::test]
async fn a_transaction_takes_no_more_than_the_store_has_room_for() {
    let (_folder, store) = sqlite().await;
    let fixture = MemoryFixture::new();
    let subscriber = Troubled::new(&fixture).await;
    publish(&fixture, &many(3)).await;
    let taking = intake(subscriber.clone(), |o| o.batch_messages_max = u32::MAX);
    let engine = start(&store, taking, things()).await;
    until("all have had their effect", || async {
        effects(&store).await.len() == 3
    })
    .await;
    let most = subscriber.most.load(Ordering::SeqCst);
    assert_eq!(most, onceward::intake::BATCH_MESSAGES_MOST);
    stop(engine).await;
}

#[tokio::test]
async fn a_quiet_intake_does_not_hold_up_a_stop() {
    let (_folder, store) = sqlite().await;
    let fixture = MemoryFixture::new();
    let engine = start(&store, intake(fixture.subscriber().await, |_| ()), things()).await;
    until("it takes in", || async { state(&engine).is_taking }).await;
    let stopping = engine.shutdown(Duration::from_secs(60));
    let stopped = tokio::time::timeout(Duration::from_secs(20), stopping).await;
    assert!(stopped.is_ok(), "its grace is not waited for");
}

/// BC-11: an error that is no message's fault costs no delivery, however fast it comes again.
#[tokio::test]
async fn what_the_store_cannot_take_now_is_held_and_not_thrown_back() {
    let (_folder, store) = sqlite().await;
    run(
        &store,
        "CREATE TRIGGER broken BEFORE INSERT ON onceward_outbox BEGIN SELECT json('{'); END",
    )
    .await;
    let fixture = MemoryFixture::new();
    let subscriber = Troubled::new(&fixture).await;
    publish(&fixture, &many(9)).await;
    let taking = intake(subscriber.clone(), |o| o.extend_every_ms = 100);
    let engine = start(&store, taking, things()).await;
    until("it was tried for a while, or given back", || async {
        let order = Ordering::SeqCst;
        subscriber.extended.load(order) >= 15 || subscriber.undone.load(order) > 0
    })
    .await;
    assert_eq!(subscriber.undone.load(Ordering::SeqCst), 0);
    assert_eq!(subscriber.asked.load(Ordering::SeqCst), 1);
    let trouble = state(&engine).trouble;
    let text = trouble.unwrap_or_default();
    assert!(text.contains("append to the log"), "{text}");
    run(&store, "DROP TRIGGER broken").await;
    until("all have had their effect", || async {
        effects(&store).await.len() + cases(&store).await.len() >= 9
    })
    .await;
    idle(&store, "things").await;
    assert_each_once(&effects(&store).await, 9);
    assert_eq!((state(&engine).known, state(&engine).trouble), (0, None));
    stop(engine).await;
}

/// One message that breaks the store's own statement does not keep the others out.
#[tokio::test]
async fn a_message_that_breaks_a_statement_is_kept_as_bytes() {
    let (_folder, store) = sqlite().await;
    run(
        &store,
        "CREATE TRIGGER broken BEFORE INSERT ON onceward_outbox WHEN NEW.type = 'thing.done' \
         AND NEW.id = 'b-0001' BEGIN SELECT json('{'); END",
    )
    .await;
    one_is_a_case(store).await;
}

/// BC-26: whatever of its names or times the store does not take, it is kept whole.
#[tokio::test]
async fn a_message_whose_names_the_store_refuses_is_kept_under_another() {
    let (_folder, store) = sqlite().await;
    run(
        &store,
        "CREATE TRIGGER refusing BEFORE INSERT ON onceward_outbox WHEN NEW.id LIKE 'b-0001%' \
         BEGIN SELECT RAISE(ABORT, 'not under this name'); END",
    )
    .await;
    let case = one_is_a_case(store).await;
    let kept = case.row.envelope;
    let came = onceward::core::cloudevents::from_structured(kept.payload.as_bytes()).unwrap();
    assert_eq!(came, event("b", "0001"));
}

async fn one_is_a_case(store: Sqlite) -> Case {
    let fixture = MemoryFixture::new();
    let subscriber = Troubled::new(&fixture).await;
    // Not heard at first: it is known when it comes again.
    subscriber.unheard.store(9, Ordering::SeqCst);
    publish(&fixture, &many(9)).await;
    let engine = start(&store, intake(subscriber.clone(), |_| ()), things()).await;
    until("the others have had their effect", || async {
        effects(&store).await.len() == 8 && cases(&store).await.len() == 1
    })
    .await;
    until("it has come again", || async { state(&engine).known >= 9 }).await;
    stop(engine).await;
    assert_eq!(subscriber.undone.load(Ordering::SeqCst), 0);
    assert_eq!(left_at_broker(&fixture).await, 0);
    let case = cases(&store).await.remove(0);
    assert_eq!(case.failure.code, "intake_unreadable");
    case
}

/// Two types of one producer may number their messages alike: what became of the one says nothing of
/// the other.
#[tokio::test]
async fn what_nobody_takes_is_a_case_whatever_became_of_another_type_under_its_id() {
    let (_folder, store) = sqlite().await;
    let of_type = |message_type: &str| {
        let mut one = event("a", "1");
        one.id = "1".into();
        one.message_type = message_type.into();
        one
    };
    let fixture = MemoryFixture::new();
    let subscriber = fixture.subscriber().await;
    publish(&fixture, &[of_type("thing.other")]).await;
    let engine = start(&store, intake(subscriber.clone(), |_| ()), things()).await;
    until("it is a case", || async { cases(&store).await.len() == 1 }).await;
    stop(engine).await;
    let both = things().on::<Other, _>(other);
    let engine = start(&store, intake(subscriber, |_| ()), both).await;
    let release = ActOnCase {
        case_id: cases(&store).await[0].case_id,
        action: CaseAction::Release,
        expected: None,
        by: BY,
    };
    store.act_on_case(release).await.unwrap();
    until("it has its effect", || async {
        effects(&store).await.len() == 1
    })
    .await;
    stop(engine).await;
    // Past the broker's own window for ids.
    let later = MemoryFixture::new();
    publish(&later, &[of_type("thing.lost")]).await;
    let engine = start(&store, intake(later.subscriber().await, |_| ()), things()).await;
    until("it is put aside", || async {
        state(&engine).put_aside == 1
    })
    .await;
    idle(&store, "intake.orders").await;
    let live = cases(&store).await.into_iter();
    let live = live.filter(|case| case.standing.state.is_live());
    let live: Vec<String> = live.map(|case| case.failure.code).collect();
    assert_eq!(live, ["intake_unwanted"]);
    stop(engine).await;
}
