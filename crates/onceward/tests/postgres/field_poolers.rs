//! Field case of poolers: a session of the server for one transaction only.

use std::time::Duration;

use onceward::core::Position;
use onceward::core::store::{
    BacklogQuery, Log, OperationQuery, ReadPage, Retention, Status, Upkeep,
};
use onceward::postgres::{Pooler, Postgres};
use onceward::{Context, EngineOptions, Failure, Outbox, RetryPolicy, Semantics, Subscription};
use onceward_testkit::postgres::PgBouncer;

use crate::place::{Place, Thing, calm, connect, record, thing};
use crate::worker::{Worker, role, stop_all};

const MESSAGES: usize = 600;
const KEYS: usize = 24;

/// Kills are nobody's failure, and there are some.
const PATIENT: RetryPolicy = RetryPolicy {
    base_ms: 10,
    cap_ms: 100,
    factor: 2.0,
    attempts_max: 12,
    age_max_ms: 600_000,
};

/// The statements of the subscriptions have the same places and types, so that one taken for
/// another would run.
async fn once(cx: &mut Context<Postgres>, thing: Thing) -> Result<String, Failure> {
    record(cx, "once", &thing).await?;
    Ok(thing.value)
}

async fn twice(cx: &mut Context<Postgres>, thing: Thing) -> Result<String, Failure> {
    let sql = "insert into effects (subscription, value, key, attempt, worker) \
               values ($1, $3 || '!', $2, $4, $5)";
    sqlx::query(sql)
        .bind("twice")
        .bind(&thing.key)
        .bind(&thing.value)
        .bind(0)
        .bind(std::process::id() as i32)
        .execute(cx.tx())
        .await?;
    let count = "insert into counters (key, n) values ($1, $2) \
                 on conflict (key) do update set n = counters.n + excluded.n returning n";
    let counted: i64 = sqlx::query_scalar(count)
        .bind(&thing.key)
        .bind(1_i64)
        .fetch_one(cx.tx())
        .await?;
    Ok(counted.to_string())
}

async fn many(cx: &mut Context<Postgres>, things: Vec<Thing>) -> Result<Vec<String>, Failure> {
    let keys: Vec<&str> = things.iter().map(|thing| thing.key.as_str()).collect();
    let values: Vec<&str> = things.iter().map(|thing| thing.value.as_str()).collect();
    let sql = "insert into effects (subscription, key, value, attempt, worker) \
               select 'many', k, v, 0, 0 from unnest($1::text[], $2::text[]) as m (k, v)";
    sqlx::query(sql)
        .bind(keys)
        .bind(values)
        .execute(cx.tx())
        .await?;
    Ok(things.into_iter().map(|thing| thing.value).collect())
}

fn subscriptions() -> [Subscription<Postgres>; 3] {
    let named = |name| Subscription::new(name, Semantics::EffectOnce);
    let subscriptions = [
        named("once").on::<Thing, _>(once),
        named("twice").on::<Thing, _>(twice),
        named("many").on_batch::<Thing, _>(many),
    ];
    subscriptions.map(|subscription| subscription.retry(PATIENT).lanes(4))
}

/// Appends in transactions of the application's own, whose statements are not kept.
async fn write(store: &Postgres, numbers: std::ops::Range<usize>) {
    let outbox = Outbox::new(store.clone());
    for n in numbers {
        let mut tx = store.pool().begin().await.unwrap();
        let own = sqlx::query("select $1::bigint").bind(n as i64);
        own.persistent(false).execute(&mut *tx).await.unwrap();
        let message = thing(&format!("k{}", n % KEYS), &format!("{n:04}"));
        outbox.append_envelopes(&mut tx, &[message]).await.unwrap();
        tx.commit().await.unwrap();
    }
}

/// What an operator does meanwhile: upkeep, questions, reading.
async fn operate(store: &Postgres) {
    loop {
        store.tidy(Retention::default()).await.unwrap();
        for subscription in store.subscriptions().await.unwrap() {
            let query = BacklogQuery {
                subscription: &subscription,
                count_max: 1_000,
                before: None,
            };
            store.backlog(query).await.unwrap();
        }
        let query = OperationQuery {
            operation: "k1-0001",
            rows_max: 10,
        };
        store.operation(query).await.unwrap();
        let page = ReadPage {
            from: &Position::origin(1),
            rows_max: 10,
            bytes_max: 1 << 20,
        };
        store.read(page).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Everything at once through two sessions: three subscriptions in two processes, one of them
/// killed and another one started, appends, upkeep and questions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ex_11_all_parts_share_two_sessions_of_a_pooler() {
    const TEST: &str = "field_poolers::ex_11_all_parts_share_two_sessions_of_a_pooler";
    if let Some(role) = role() {
        let options = EngineOptions {
            lease_ms: 3_000,
            ..calm()
        };
        return role.work_on(options, subscriptions()).await;
    }
    let place = Place::new().await;
    let pooler = PgBouncer::start(place.url(), 2).await;
    let url = pooler.url(place.url());
    let through = connect(&url).await;
    assert_eq!(through.pooler().await.unwrap(), Pooler::Forgetful);
    let mut workers = vec![
        Worker::start_at(TEST, &url, ""),
        Worker::start_at(TEST, &url, ""),
    ];
    for worker in &workers {
        worker.until_it_owns_lanes().await;
    }
    let operating = tokio::spawn({
        let through = through.clone();
        async move { operate(&through).await }
    });
    write(&through, 0..MESSAGES / 2).await;
    place.until_some_effects(MESSAGES as i64 / 2).await;
    workers.remove(0).kill();
    workers.push(Worker::start_at(TEST, &url, ""));
    write(&through, MESSAGES / 2..MESSAGES).await;
    place.until_effects(3 * MESSAGES as i64).await;
    for subscription in ["once", "twice", "many"] {
        place.idle(subscription).await;
        let values = place.values(subscription).await;
        let mark = if subscription == "twice" { "!" } else { "" };
        for key in 0..KEYS {
            let all = (key..MESSAGES).step_by(KEYS);
            let all: Vec<String> = all.map(|n| format!("{n:04}{mark}")).collect();
            assert_eq!(values[&format!("k{key}")], all, "{subscription}");
        }
        assert!(place.cases(subscription).await.is_empty());
    }
    assert_eq!(place.effect_count().await, 3 * MESSAGES as i64);
    let counted = place.count("select sum(n)::bigint from counters").await;
    assert_eq!(counted, MESSAGES as i64);
    assert!(!operating.is_finished(), "upkeep or a question failed");
    operating.abort();
    stop_all(workers, Duration::from_secs(10)).await;
}
