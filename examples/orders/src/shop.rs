//! The business's own tables. Nothing in them forbids a second shipment of an order: that there is
//! none is the ledger's work, and the demo checks it.

use std::future::Future;
use std::ops::DerefMut;

use onceward::core::store::{Append, Store};
use onceward::postgres::Postgres;
use onceward::sqlite::Sqlite;
use serde::{Deserialize, Serialize};

use crate::message::{FulfillmentRejected, OrderAccepted, ShipmentCreated};

/// The tables, as statements that both databases take.
const TABLES: [&str; 5] = [
    "CREATE TABLE IF NOT EXISTS shop_orders (
        order_id text PRIMARY KEY, checkout_id text NOT NULL, country text NOT NULL,
        city text NOT NULL, street text NOT NULL, status text NOT NULL)",
    "CREATE TABLE IF NOT EXISTS shop_shipments (
        shipment_id text PRIMARY KEY, order_id text NOT NULL, checkout_id text NOT NULL,
        booking text NOT NULL)",
    "CREATE INDEX IF NOT EXISTS shop_shipments_order ON shop_shipments (order_id)",
    "CREATE TABLE IF NOT EXISTS shop_rejections (
        order_id text NOT NULL, checkout_id text NOT NULL, reason text NOT NULL)",
    "CREATE INDEX IF NOT EXISTS shop_rejections_order ON shop_rejections (order_id)",
];

/// Names of the tables.
pub const TABLE_NAMES: [&str; 3] = ["shop_orders", "shop_shipments", "shop_rejections"];

const INSERT_ORDER: &str = "INSERT INTO shop_orders \
    (order_id, checkout_id, country, city, street, status) \
    VALUES ($1, $2, $3, $4, $5, 'accepted')";
const INSERT_SHIPMENT: &str = "INSERT INTO shop_shipments \
    (shipment_id, order_id, checkout_id, booking) VALUES ($1, $2, $3, $4)";
const INSERT_REJECTION: &str =
    "INSERT INTO shop_rejections (order_id, checkout_id, reason) VALUES ($1, $2, $3)";
const SET_STATUS: &str =
    "UPDATE shop_orders SET status = $2 WHERE order_id = $1 AND status = 'accepted'";
const FIND: &str = "SELECT o.order_id, o.checkout_id, o.status, \
    (SELECT min(s.shipment_id) FROM shop_shipments s WHERE s.order_id = o.order_id), \
    (SELECT min(r.reason) FROM shop_rejections r WHERE r.order_id = o.order_id) \
    FROM shop_orders o WHERE o.order_id = $1";
// One statement, so that all numbers are of the same moment.
const COUNTS: &str = "SELECT count(*), count(CASE WHEN status = 'accepted' THEN 1 END), \
    (SELECT count(*) FROM shop_shipments) + (SELECT count(*) FROM shop_rejections) \
    FROM shop_orders";
const ORDERS: &str = "SELECT order_id, checkout_id, status FROM shop_orders";
const SHIPMENTS: &str = "SELECT order_id, checkout_id, booking FROM shop_shipments";
const REJECTIONS: &str = "SELECT order_id, checkout_id, reason FROM shop_rejections";

/// How an order stands, for its client. Accepted is not completed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderStatus {
    /// The order.
    pub order_id: String,
    /// The business operation.
    pub checkout_id: String,
    /// `accepted`, `shipped` or `rejected`.
    pub status: String,
    /// The shipment, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shipment_id: Option<String>,
    /// Why there will be none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A row about an order: order id, checkout id, and a third text.
pub type BookRow = (String, String, String);

/// All rows, to compare with what others have recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Orders, with their status.
    pub orders: Vec<BookRow>,
    /// Shipments, with the carrier's number.
    pub shipments: Vec<BookRow>,
    /// Rejections, with their reason.
    pub rejections: Vec<BookRow>,
}

/// How many orders there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All.
    pub orders: u64,
    /// Without a final status.
    pub open: u64,
    /// Shipments and rejections.
    pub outcomes: u64,
}

/// Writing into the business's tables, inside whatever transaction the caller has.
pub trait Shop: Store {
    /// A transaction of the application's own. Dropping it rolls back.
    type ShopTx: DerefMut<Target = <Self as Append>::Connection> + Send;

    /// Begins a transaction.
    fn begin_shop(&self) -> impl Future<Output = sqlx::Result<Self::ShopTx>> + Send;

    /// Commits it.
    fn commit_shop(tx: Self::ShopTx) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Writes an order.
    fn insert_order(
        connection: &mut <Self as Append>::Connection,
        order: &OrderAccepted,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Writes a shipment.
    fn insert_shipment(
        connection: &mut <Self as Append>::Connection,
        shipment: &ShipmentCreated,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Writes a rejection.
    fn insert_rejection(
        connection: &mut <Self as Append>::Connection,
        rejection: &FulfillmentRejected,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Gives an open order its final status; returns how many were open.
    fn set_status(
        connection: &mut <Self as Append>::Connection,
        order_id: &str,
        status: &str,
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;
}

/// Questions about the business's tables.
pub trait ShopBooks: Shop {
    /// Makes the tables that are missing.
    fn create_tables(&self) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// One order.
    fn find_order(
        &self,
        order_id: &str,
    ) -> impl Future<Output = sqlx::Result<Option<OrderStatus>>> + Send;

    /// How many.
    fn counts(&self) -> impl Future<Output = sqlx::Result<Counts>> + Send;

    /// Everything.
    fn books(&self) -> impl Future<Output = sqlx::Result<Books>> + Send;
}

/// The statements are the same for both databases; only the types of sqlx differ.
macro_rules! shop {
    ($store:ty, $db:ty, $begin:expr) => {
        impl Shop for $store {
            type ShopTx = sqlx::Transaction<'static, $db>;

            async fn begin_shop(&self) -> sqlx::Result<Self::ShopTx> {
                self.pool().begin_with($begin).await
            }

            async fn commit_shop(tx: Self::ShopTx) -> sqlx::Result<()> {
                tx.commit().await
            }

            async fn insert_order(
                connection: &mut <$store as Append>::Connection,
                order: &OrderAccepted,
            ) -> sqlx::Result<()> {
                let query = sqlx::query(INSERT_ORDER)
                    .bind(&order.order_id)
                    .bind(&order.checkout_id)
                    .bind(&order.address.country)
                    .bind(&order.address.city)
                    .bind(&order.address.street);
                query.execute(connection).await.map(drop)
            }

            async fn insert_shipment(
                connection: &mut <$store as Append>::Connection,
                shipment: &ShipmentCreated,
            ) -> sqlx::Result<()> {
                let query = sqlx::query(INSERT_SHIPMENT)
                    .bind(&shipment.shipment_id)
                    .bind(&shipment.order_id)
                    .bind(&shipment.checkout_id)
                    .bind(&shipment.booking);
                query.execute(connection).await.map(drop)
            }

            async fn insert_rejection(
                connection: &mut <$store as Append>::Connection,
                rejection: &FulfillmentRejected,
            ) -> sqlx::Result<()> {
                let query = sqlx::query(INSERT_REJECTION)
                    .bind(&rejection.order_id)
                    .bind(&rejection.checkout_id)
                    .bind(&rejection.reason);
                query.execute(connection).await.map(drop)
            }

            async fn set_status(
                connection: &mut <$store as Append>::Connection,
                order_id: &str,
                status: &str,
            ) -> sqlx::Result<u64> {
                let query = sqlx::query(SET_STATUS).bind(order_id).bind(status);
                Ok(query.execute(connection).await?.rows_affected())
            }
        }

        impl ShopBooks for $store {
            async fn create_tables(&self) -> sqlx::Result<()> {
                let mut tx = self.begin_shop().await?;
                for statement in TABLES {
                    sqlx::query(statement).execute(&mut *tx).await?;
                }
                tx.commit().await
            }

            async fn find_order(&self, order_id: &str) -> sqlx::Result<Option<OrderStatus>> {
                type Found = (String, String, String, Option<String>, Option<String>);
                let query = sqlx::query_as::<_, Found>(FIND).bind(order_id);
                let found = query.fetch_optional(self.pool()).await?;
                Ok(found.map(
                    |(order_id, checkout_id, status, shipment_id, reason)| OrderStatus {
                        order_id,
                        checkout_id,
                        status,
                        shipment_id,
                        reason,
                    },
                ))
            }

            async fn counts(&self) -> sqlx::Result<Counts> {
                let query = sqlx::query_as::<_, (i64, i64, i64)>(COUNTS);
                let (orders, open, outcomes) = query.fetch_one(self.pool()).await?;
                Ok(Counts {
                    orders: orders.unsigned_abs(),
                    open: open.unsigned_abs(),
                    outcomes: outcomes.unsigned_abs(),
                })
            }

            async fn books(&self) -> sqlx::Result<Books> {
                Ok(Books {
                    orders: sqlx::query_as(ORDERS).fetch_all(self.pool()).await?,
                    shipments: sqlx::query_as(SHIPMENTS).fetch_all(self.pool()).await?,
                    rejections: sqlx::query_as(REJECTIONS).fetch_all(self.pool()).await?,
                })
            }
        }
    };
}

// A transaction that reads before it writes is refused by SQLite when another writer came in
// between, so it says at its beginning that it will write.
shop!(Sqlite, sqlx::Sqlite, "BEGIN IMMEDIATE");
shop!(
    Postgres,
    sqlx::Postgres,
    "BEGIN ISOLATION LEVEL READ COMMITTED"
);
