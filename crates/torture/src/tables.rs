//! The business's own tables, the same in both databases.

use onceward::core::store::{Append, Store};
use onceward::postgres::Postgres;
use onceward::sqlite::Sqlite;

/// Makes the tables on PostgreSQL.
pub(crate) const ON_POSTGRES: &str = "
CREATE TABLE orders (id text PRIMARY KEY, key text NOT NULL, number bigint NOT NULL,
    mood text NOT NULL, operation text NOT NULL);
CREATE TABLE counters (key text PRIMARY KEY, n bigint NOT NULL);
CREATE TABLE effects (n bigserial PRIMARY KEY, subscription text NOT NULL, id text NOT NULL,
    outcome text NOT NULL, attempt bigint NOT NULL, worker bigint NOT NULL);
CREATE INDEX effects_id ON effects (subscription, id);";

/// Makes the tables on SQLite.
pub(crate) const ON_SQLITE: &str = "
CREATE TABLE orders (id text PRIMARY KEY, key text NOT NULL, number bigint NOT NULL,
    mood text NOT NULL, operation text NOT NULL);
CREATE TABLE counters (key text PRIMARY KEY, n bigint NOT NULL);
CREATE TABLE effects (n integer PRIMARY KEY AUTOINCREMENT, subscription text NOT NULL,
    id text NOT NULL, outcome text NOT NULL, attempt bigint NOT NULL, worker bigint NOT NULL);
CREATE INDEX effects_id ON effects (subscription, id);";

const NEXT: &str = "INSERT INTO counters AS c (key, n) VALUES ($1, 1) \
    ON CONFLICT (key) DO UPDATE SET n = c.n + 1 RETURNING n";
const ORDER: &str = "INSERT INTO orders (id, key, number, mood, operation) \
    VALUES ($1, $2, $3, $4, $5)";
const EFFECT: &str = "INSERT INTO effects (subscription, id, outcome, attempt, worker) \
    VALUES ($1, $2, $3, $4, $5)";

/// An order's row.
pub(crate) struct Order<'a> {
    pub(crate) id: &'a str,
    pub(crate) key: &'a str,
    pub(crate) number: i64,
    pub(crate) mood: &'a str,
    pub(crate) operation: &'a str,
}

/// An effect's row.
pub(crate) struct Effect<'a> {
    pub(crate) subscription: &'a str,
    pub(crate) id: &'a str,
    pub(crate) outcome: &'a str,
    pub(crate) attempt: u32,
}

type Connection<S> = <S as Append>::Connection;
type Written<T> = Result<T, sqlx::Error>;

/// The business's statements on a store's connection.
pub(crate) trait Books: Store {
    /// The next number of a key; holds the key until the transaction ends, so that the order of
    /// numbers is the order of commits.
    fn next(tx: &mut Connection<Self>, key: &str) -> impl Future<Output = Written<i64>> + Send;
    /// Writes an order.
    fn order(
        tx: &mut Connection<Self>,
        order: &Order<'_>,
    ) -> impl Future<Output = Written<()>> + Send;
    /// Writes an effect.
    fn effect(
        tx: &mut Connection<Self>,
        effect: &Effect<'_>,
    ) -> impl Future<Output = Written<()>> + Send;
    /// Writes an effect past the effect transaction, which is wrong.
    fn effect_outside(&self, effect: &Effect<'_>) -> impl Future<Output = Written<()>> + Send;
}

macro_rules! books {
    ($store:ty) => {
        impl Books for $store {
            async fn next(tx: &mut Connection<Self>, key: &str) -> Written<i64> {
                sqlx::query_scalar(NEXT).bind(key).fetch_one(tx).await
            }

            async fn order(tx: &mut Connection<Self>, order: &Order<'_>) -> Written<()> {
                let query = sqlx::query(ORDER)
                    .bind(order.id)
                    .bind(order.key)
                    .bind(order.number)
                    .bind(order.mood)
                    .bind(order.operation);
                query.execute(tx).await.map(|_| ())
            }

            async fn effect(tx: &mut Connection<Self>, effect: &Effect<'_>) -> Written<()> {
                let query = sqlx::query(EFFECT)
                    .bind(effect.subscription)
                    .bind(effect.id)
                    .bind(effect.outcome)
                    .bind(i64::from(effect.attempt))
                    .bind(i64::from(std::process::id()));
                query.execute(tx).await.map(|_| ())
            }

            async fn effect_outside(&self, effect: &Effect<'_>) -> Written<()> {
                let mut connection = self.pool().acquire().await?;
                Self::effect(&mut connection, effect).await
            }
        }
    };
}

books!(Postgres);
books!(Sqlite);
