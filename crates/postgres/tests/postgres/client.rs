//! Appending through another client, as the example does it.

use onceward_core::{Payload, Position, Timestamp};
use tokio_postgres::NoTls;

use crate::support::{drain, envelope, store};

#[path = "../../examples/other_client.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "its main function is for running it by hand"
)]
mod other_client;

#[tokio::test]
async fn another_client_appends_the_same() {
    let (database, store) = store().await;
    let (mut client, connection) = tokio_postgres::connect(database.url(), NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut full = envelope("m1", "k");
    full.source = Some("urn:test".into());
    full.operation_id = Some("op".into());
    full.partition_key = Some("p".into());
    full.schema_version = Some(3);
    full.aggregate_version = Some(i64::MAX);
    full.occurred_at = Some(Timestamp::from_micros(1_764_511_200_123_457));
    full.expires_at = Some(Timestamp::from_micros(-1));
    full.priority = -7;
    full.attributes
        .insert("traceparent".into(), "00-\"é".into());
    let mut binary = envelope("m2", "k");
    binary.source = Some("urn:test".into());
    binary.payload = Payload::Binary(vec![0, 255, 7].into());
    let transaction = client.transaction().await.unwrap();
    other_client::append(&transaction, &full).await.unwrap();
    other_client::append(&transaction, &binary).await.unwrap();
    transaction.commit().await.unwrap();
    let transaction = client.transaction().await.unwrap();
    other_client::append(&transaction, &envelope("undone", "k"))
        .await
        .unwrap();
    transaction.rollback().await.unwrap();

    let rows = drain(&store, &mut Position::origin(1), 10).await;
    let found: Vec<_> = rows.into_iter().map(|row| row.envelope).collect();
    assert_eq!(found, [full, binary]);
}
