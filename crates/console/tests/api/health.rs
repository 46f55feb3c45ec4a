//! The probes.

use onceward_console::{Console, StoreGate};
use onceward_core::store::Schema;

use crate::client::get;
use crate::server::{serve, store};

#[tokio::test]
async fn readiness_needs_tables_and_a_running_engine() {
    let (store, _folder) = store().await;
    let address = serve(Console::new(StoreGate::new(store.clone())).router()).await;
    let problem = get("/readyz").send(address).await.problem(503, "OW2021");
    assert_eq!(problem["check"], "schema");

    store.migrate().await.unwrap();
    assert_eq!(get("/readyz").send(address).await.status, 200);

    let stopping = StoreGate::new(store).engine(|| Err("it is shutting down".to_owned()));
    let address = serve(Console::new(stopping).router()).await;
    let problem = get("/readyz").send(address).await.problem(503, "OW2021");
    assert_eq!(
        (&problem["check"], &problem["detail"]),
        (&"engine".into(), &"it is shutting down".into())
    );
    let live = get("/livez").send(address).await;
    assert_eq!(
        (live.status, live.json()["status"].as_str()),
        (200, Some("live"))
    );
}
