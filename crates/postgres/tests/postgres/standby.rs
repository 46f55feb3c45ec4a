//! A standby only reads: it is refused until it is promoted.

use onceward_core::Position;
use onceward_core::store::{
    Append, Begin, CaseQuery, CasedQuery, Cases, Deferrals, Effects, End, HeldKeysQuery, Lanes,
    LoadKey, Log, ReadPage, Renew, Retention, Schema, Start, StoreErrorKind, Upkeep,
};
use onceward_postgres::Postgres;
use onceward_testkit::postgres::{PostgresOptions, PostgresServer};
use sqlx::{Connection as _, PgConnection};

use crate::support::{SUB, append, drain, envelope, ids, join, register};

/// Waits until a query on a server answers true.
async fn until(url: &str, query: &'static str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    for _ in 0..100_000 {
        let answer = sqlx::query_scalar(query).fetch_one(&mut connection).await;
        if answer.unwrap() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("never true: {query}");
}

#[tokio::test]
async fn a_streaming_standby_is_refused_until_it_is_promoted() {
    let mut primary = PostgresServer::start_with(PostgresOptions::quick()).await;
    let old = Postgres::connect(&primary.url("postgres")).await.unwrap();
    old.migrate().await.unwrap();
    register(&old, Start::Earliest).await;
    let lease = join(&old, "m", 60_000).await;
    let standby = primary.standby().await;
    append(&old, &[envelope("streamed", "a")]).await;
    let url = standby.url("postgres");
    until(&url, "select count(*) = 1 from onceward.outbox").await;

    let store = Postgres::connect(&url).await.unwrap();
    let from = Position::origin(1);
    let request = ReadPage {
        from: &from,
        rows_max: 10,
        bytes_max: 1 << 20,
    };
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let messages = [envelope("refused", "a")];
    let seqs = [1];
    let keys = || HeldKeysQuery {
        subscription: SUB,
        slots: (0, u16::MAX),
    };
    let key = LoadKey {
        subscription: SUB,
        slot: 0,
        key: "a",
        after_seq: 0,
        versions_to: None,
        rows_max: 10,
    };
    let cased = CasedQuery {
        subscription: SUB,
        seqs: &seqs,
    };
    let refusals = [
        // A key that holds on the primary may look free here.
        store.held_keys(keys()).await.err(),
        store.held_cases(keys()).await.err(),
        store.load_key(key).await.err(),
        store.cased(cased).await.err(),
        store.cases(CaseQuery::default()).await.err(),
        store.ping().await.err(),
        store.read(request).await.err(),
        store.head().await.err(),
        store.begin(Begin { lease: None }).await.err(),
        store
            .begin(Begin {
                lease: Some(&lease),
            })
            .await
            .err(),
        store.renew(Renew::of(&lease)).await.err(),
        store.tidy(Retention::default()).await.err(),
        store.append(&mut connection, &messages).await.err(),
    ];
    for (n, refusal) in refusals.into_iter().enumerate() {
        let kind = refusal.map(|error| error.kind());
        assert_eq!(kind, Some(StoreErrorKind::ReadOnly), "request {n}");
    }

    primary.kill().await;
    sqlx::query("select pg_promote()")
        .execute(&mut connection)
        .await
        .unwrap();
    // The same store, with the connections that it has, and the same member.
    store.renew(Renew::of(&lease)).await.unwrap();
    let tx = store
        .begin(Begin {
            lease: Some(&lease),
        })
        .await
        .unwrap();
    store.end(tx, End::Commit).await.unwrap();
    append(&store, &[envelope("after", "a")]).await;
    let mut position = from.clone();
    let rows = drain(&store, &mut position, 10).await;
    assert_eq!(ids(&rows), ["streamed", "after"]);
    store.tidy(Retention::default()).await.unwrap();
}
