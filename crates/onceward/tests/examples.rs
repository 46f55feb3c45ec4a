//! Examples that need a server, run on one.

use std::time::Duration;

use onceward_testkit::postgres::TestDatabase;

#[path = "../examples/on_postgres.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "its main function is for running it by hand"
)]
mod on_postgres;

#[tokio::test]
async fn an_order_is_shipped_on_postgres() {
    let database = TestDatabase::lease().await;
    let running = on_postgres::run(database.url());
    let shipments = tokio::time::timeout(Duration::from_secs(60), running).await;
    assert_eq!(shipments.unwrap().unwrap(), 1);
}
