//! A database of one's own with a business table, messages, and waiting for states.

use std::collections::BTreeMap;
use std::time::Duration;

use onceward::core::store::{Backlog, BacklogQuery, Case, CaseQuery, Cases, Schema, Status};
use onceward::postgres::{Options, Postgres};
use onceward::{
    Boxed, Context, Engine, EngineOptions, Envelope, Failure, Message, Outbox, Payload,
    RetryPolicy, Running, Start, Subscription,
};
use onceward_testkit::postgres::TestDatabase;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Quick retries.
pub const RETRY: RetryPolicy = RetryPolicy {
    base_ms: 1,
    cap_ms: 20,
    factor: 2.0,
    attempts_max: 3,
    age_max_ms: 600_000,
};

const TABLES: &str = "
create table effects (
    n bigserial primary key,
    subscription text not null,
    key text not null,
    value text not null,
    attempt integer not null,
    worker integer not null,
    top xid8 not null default pg_current_xact_id()
);
create table counters (key text primary key, n bigint not null)";

#[derive(Clone, Debug, Serialize, Deserialize, Message)]
#[message(type = "thing.done", version = 1, key = key)]
pub struct Thing {
    pub key: String,
    pub value: String,
}

/// An effect as found in the business table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    pub key: String,
    pub value: String,
    pub attempt: i32,
    pub worker: i32,
}

/// Leases that are not lost on a busy machine.
pub fn calm() -> EngineOptions {
    EngineOptions {
        lease_ms: 20_000,
        renew_ms: 100,
        doze_max_ms: 20,
        ..EngineOptions::default()
    }
}

/// Short leases, for what happens when they run out.
pub fn hasty() -> EngineOptions {
    EngineOptions {
        lease_ms: 1_500,
        ..calm()
    }
}

/// A migrated database with the business tables.
pub struct Place {
    pub store: Postgres,
    url: String,
    /// Dropped last.
    _database: Option<TestDatabase>,
}

/// Connects with small pools.
pub async fn connect(url: &str) -> Postgres {
    let options = Options {
        effect_connections: 12,
        lease_connections: 2,
        read_connections: 3,
        acquire_timeout_ms: 5_000,
    };
    Postgres::connect_with(url, options).await.unwrap()
}

impl Place {
    pub async fn new() -> Self {
        let database = TestDatabase::prepared(async |url| {
            let place = Self::at(url).await;
            place.store.close().await;
        });
        let database = database.await;
        // To the store a copy is another database; a test means it to be at home.
        let at_home = "update onceward.meta set identity = onceward.identity(),
            source = 'urn:onceward:' || current_database()";
        database.psql(at_home).await;
        let url = database.url().to_owned();
        Self {
            store: connect(&url).await,
            url,
            _database: Some(database),
        }
    }

    /// On a server that the test itself keeps.
    pub async fn at(url: String) -> Self {
        let store = connect(&url).await;
        store.migrate().await.unwrap();
        sqlx::raw_sql(TABLES).execute(store.pool()).await.unwrap();
        Self {
            store,
            url,
            _database: None,
        }
    }

    /// With sessions that know of settings made meanwhile.
    pub async fn connected_anew(self) -> Self {
        let store = connect(&self.url).await;
        Self { store, ..self }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn pool(&self) -> &PgPool {
        self.store.pool()
    }

    pub async fn run(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(self.pool()).await.unwrap();
    }

    /// A single number.
    pub async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql)
            .fetch_one(self.pool())
            .await
            .unwrap()
    }

    /// Appends in one transaction.
    pub async fn append(&self, envelopes: &[Envelope]) {
        let outbox = Outbox::new(self.store.clone());
        let mut tx = self.pool().begin().await.unwrap();
        outbox.append_envelopes(&mut tx, envelopes).await.unwrap();
        tx.commit().await.unwrap();
        outbox.ring();
    }

    pub async fn append_things(&self, things: &[(&str, &str)]) {
        let envelopes: Vec<_> = things
            .iter()
            .map(|(key, value)| thing(key, value))
            .collect();
        self.append(&envelopes).await;
    }

    /// All effects of a subscription in the order of their insert, which for one key is the order
    /// of their commits.
    pub async fn effects(&self, subscription: &str) -> Vec<Effect> {
        let sql = "select key, value, attempt, worker from effects \
                   where subscription = $1 order by n";
        let effects: Vec<(String, String, i32, i32)> = sqlx::query_as(sql)
            .bind(subscription)
            .fetch_all(self.pool())
            .await
            .unwrap();
        let effects = effects.into_iter();
        let effects = effects.map(|(key, value, attempt, worker)| Effect {
            key,
            value,
            attempt,
            worker,
        });
        effects.collect()
    }

    pub async fn effect_count(&self) -> i64 {
        self.count("select count(*) from effects").await
    }

    /// Waits for effects as long as more of them come.
    pub async fn until_effects(&self, count: i64) {
        let mut seen = self.effect_count().await;
        while seen < count {
            until(&format!("more than {seen} of {count} effects"), || async {
                self.effect_count().await > seen
            })
            .await;
            seen = self.effect_count().await;
        }
        assert_eq!(seen, count);
    }

    /// Waits for at least as many effects.
    pub async fn until_some_effects(&self, count: i64) {
        until(&format!("{count} effects"), || async {
            self.effect_count().await >= count
        })
        .await;
    }

    /// Values by key, in order.
    pub async fn values(&self, subscription: &str) -> BTreeMap<String, Vec<String>> {
        let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for effect in self.effects(subscription).await {
            keys.entry(effect.key).or_default().push(effect.value);
        }
        keys
    }

    pub async fn backlog(&self, subscription: &str) -> Backlog {
        let query = BacklogQuery {
            subscription,
            count_max: 100_000,
            before: None,
        };
        self.store.backlog(query).await.unwrap()
    }

    /// Waits until nothing is left to be done but what cases hold back.
    pub async fn idle(&self, subscription: &str) {
        let open = "select count(*) from onceward.deferrals d where d.subscription = $1 \
                    and not exists (select from onceward.cases c where c.holds_key \
                    and c.subscription = d.subscription \
                    and coalesce(c.partitionkey, c.aggregateid) = d.key)";
        until(&format!("{subscription} is idle"), || async {
            if self.backlog(subscription).await.waiting > 0 {
                return false;
            }
            let open = sqlx::query_scalar(open).bind(subscription);
            let open: i64 = open.fetch_one(self.pool()).await.unwrap();
            open == 0
        })
        .await;
    }

    pub async fn cases(&self, subscription: &str) -> Vec<Case> {
        let query = CaseQuery {
            subscription: Some(subscription),
            rows_max: 10_000,
            ..CaseQuery::default()
        };
        self.store.cases(query).await.unwrap()
    }

    pub async fn start(
        &self,
        options: EngineOptions,
        work: Subscription<Postgres>,
    ) -> Running<Postgres> {
        let engine = Engine::builder(self.store.clone()).options(options);
        let engine = engine.subscribe(work.start(Start::Earliest));
        engine.start().await.unwrap()
    }
}

/// A message whose id is its key and value.
pub fn thing(key: &str, value: &str) -> Envelope {
    message(&format!("{key}-{value}"), Thing::TYPE, key, value)
}

pub fn message(id: &str, message_type: &str, key: &str, value: &str) -> Envelope {
    let payload = serde_json::json!({ "key": key, "value": value });
    let payload = Payload::Json(payload.to_string().into());
    Envelope::new(id, "thing", key, message_type, payload)
}

/// Gives a closure the type of a handler.
pub fn handler<F>(handle: F) -> F
where
    F: for<'a> Fn(&'a mut Context<Postgres>, Thing) -> Boxed<'a, Result<String, Failure>>
        + Send
        + Sync
        + 'static,
{
    handle
}

/// Writes the effect.
pub async fn record(
    cx: &mut Context<Postgres>,
    subscription: &str,
    thing: &Thing,
) -> Result<(), Failure> {
    let attempt = i32::try_from(cx.attempt()).unwrap_or(i32::MAX);
    let sql = "insert into effects (subscription, key, value, attempt, worker) \
               values ($1, $2, $3, $4, $5)";
    sqlx::query(sql)
        .bind(subscription)
        .bind(&thing.key)
        .bind(&thing.value)
        .bind(attempt)
        .bind(std::process::id() as i32)
        .execute(cx.tx())
        .await?;
    Ok(())
}

/// Waits until a condition holds.
pub async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let waited = tokio::time::timeout(PATIENCE, async {
        let mut look = tokio::time::interval(Duration::from_millis(15));
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            if holds().await {
                return;
            }
        }
    });
    assert!(waited.await.is_ok(), "waited in vain until {what}");
}
