//! Field case EX-11: the program behind a pooler that lends a session for one transaction.

use axum::http::StatusCode;

use crate::place::{Place, event, push_to};
use crate::receiver::Receiver;

#[tokio::test(flavor = "multi_thread")]
async fn ex_11_every_command_works_through_two_sessions_of_a_pooler() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut receiver = Receiver::start(|_| StatusCode::NO_CONTENT, false).await;
    let place = Place::pooled().await;
    place.configure(&push_to(&receiver.url()));
    place.run(&["migrate"]).ended(0);
    let report = place.run(&["doctor", "--json"]).json();
    let checks = report["checks"].as_array().unwrap();
    let pooler = checks.iter().find(|check| check["name"] == "pooler");
    let found = pooler.expect("it looks")["found"].as_str().unwrap();
    assert!(found.contains("may lend sessions"), "{report:#}");
    let failed: Vec<_> = checks
        .iter()
        .filter(|check| check["verdict"] == "failed")
        .collect();
    // A server for tests may be one that loses what it commits.
    let durable = ["fsync", "full_page_writes", "synchronous_commit"];
    assert!(
        failed
            .iter()
            .all(|check| durable.contains(&check["name"].as_str().unwrap())),
        "{report:#}"
    );
    let events = |range: std::ops::Range<u32>| -> String {
        let one = |i| {
            event(
                &format!("m{i}"),
                "order.accepted",
                &format!("o{}", i % 5),
                "1",
            )
        };
        range.map(one).collect()
    };
    place.run_with_input(&["send"], events(0..300)).ended(0);
    let first = place.up_named("first.log", &["--lease", "3s"]);
    let second = place.up_named("second.log", &["--lease", "3s"]);
    place
        .run_with_input(&["send", "--url", &second.url], events(300..400))
        .ended(0);
    for _ in 0..200 {
        receiver.next().await;
    }
    first.kill();
    place.run_with_input(&["send"], events(0..500)).ended(0);
    let watched = place.watch("m499", 0);
    assert!(watched.out.contains("delivered"), "{watched:#?}");
    place.nothing_is_left();
    let shown = place
        .run(&["operation", "show", "m0", "--json"])
        .ended(0)
        .json();
    assert_eq!(shown["messages"][0]["id"], "m0");
    for args in [
        &["subscription", "list"][..],
        &["quarantine", "list"],
        &["backlog"],
    ] {
        place.run(args).ended(0);
    }
    assert_eq!(second.stop(), 0);
    for i in [0, 250, 350, 450] {
        assert_eq!(place.state_of(&format!("m{i}"))["state"], "delivered");
    }
}

/// What prepares statements of its own says so, instead of failing in the middle.
#[tokio::test]
async fn ex_11_demo_and_bench_ask_for_the_server_itself() {
    let place = Place::pooled().await;
    let url = place.store_url();
    for args in [
        &["demo", "--store", &url][..],
        &["bench", "effects", "--store", &url],
    ] {
        place
            .run(args)
            .ended(2)
            .says(&["pooler", "the server itself"]);
    }
}
