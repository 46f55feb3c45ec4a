//! `up`: delivery, failure, readiness, the end.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::StatusCode;
use rustix::process::Signal;
use serde_json::json;

use crate::on_both_stores;
use crate::place::{Place, SOON, event, push_to};
use crate::receiver::Receiver;

async fn get(url: &str) -> StatusCode {
    let client = reqwest::Client::builder().timeout(SOON).build().unwrap();
    client.get(url).send().await.unwrap().status()
}

fn with_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

on_both_stores! {
    async fn messages_reach_their_target_signed_and_in_order(place) {
        with_crypto();
        let mut receiver = Receiver::start(|_| StatusCode::NO_CONTENT, false).await;
        place.configure(&push_to(&receiver.url()));
        place.run(&["migrate"]).ended(0);
        // Sent while nobody is there.
        place.run_with_input(&["send"], event("m0", "order.accepted", "o1", "{\"n\": 1.0}")).ended(0);
        let daemon = place.up(&[]);
        assert_eq!(get(&format!("{}/livez", daemon.url)).await, 200);
        let first = receiver.next().await;
        assert_eq!((first.header("webhook-id"), first.text()), ("m0", "{\"n\": 1.0}"));
        assert!(first.header("webhook-signature").starts_with("v1,"));
        assert_eq!(first.header("ce-type"), "order.accepted");
        assert_eq!(get(&format!("{}/readyz", daemon.url)).await, 200);
        // Sent over HTTP while it runs.
        let more: String = (1..=20).map(|i| event(&format!("m{i}"), "order.accepted", "o1", "1")).collect();
        place.run_with_input(&["send", "--url", &daemon.url], &more).ended(0);
        for i in 1..=20 {
            assert_eq!(receiver.next().await.header("webhook-id"), format!("m{i}"));
        }
        let watched = place.run(&["operation", "watch", "m20", "--timeout", "30s", "--json"]).ended(0);
        assert!(watched.out.contains("\"state\":\"delivered\""), "{watched:#?}");
        let again = place.run_with_input(&["send", "--url", &daemon.url, "--json"], &more).ended(0);
        assert_eq!(again.json()["accepted_before_at_least"], 20);
        assert_eq!(daemon.stop(), 0);
        assert!(receiver.is_idle());
        let lanes = place.run(&["subscription", "list", "--json"]).ended(0).json();
        assert_eq!(lanes["subscriptions"][0]["lanes_owned"], 0, "handed back at the end");
    }

    async fn a_refused_message_becomes_a_case_that_hides_its_payload(place) {
        with_crypto();
        let mut receiver = Receiver::start(|_| StatusCode::BAD_REQUEST, false).await;
        place.configure(&push_to(&receiver.url()));
        let daemon = place.up(&["--migrate"]);
        let line = event("m1", "order.accepted", "o1", "{\"card\":\"4111\",\"n\":1.50}");
        place.run_with_input(&["send"], &line).ended(0);
        receiver.next().await;
        let watched = place.run(&["operation", "watch", "m1", "--timeout", "30s"]).ended(1);
        assert!(watched.out.contains("quarantined"), "{watched:#?}");
        let watched = watched.says(&["OW1029", "did not end well"]);
        assert!(!watched.out.contains("4111"), "{watched:#?}");
        let listed = place.run(&["quarantine", "list", "--json"]).ended(0);
        let case = &listed.json()["cases"][0];
        assert_eq!((&case["subscription"], &case["message"]["id"]), (&json!("hook"), &json!("m1")));
        let id = case["case_id"].to_string();
        for args in [&["quarantine", "list"][..], &["quarantine", "show", &id], &["quarantine", "show", &id, "--json"]] {
            let ran = place.run(args).ended(0);
            assert!(!ran.out.contains("4111") && ran.out.contains("order.accepted"), "{ran:#?}");
        }
        let ran = place.run(&["quarantine", "reveal", &id, "--why", "a test", "--json"]).ended(0);
        assert!(ran.out.contains("\"data\":{\"card\":\"4111\",\"n\":1.50}"), "{ran:#?}");
        let ran = place.run(&["quarantine", "reveal", &id, "--why", "a test"]).ended(0);
        assert!(ran.out.contains("4111"), "{ran:#?}");
        let backlog = place.run(&["backlog", "--json"]).ended(0).json();
        assert_eq!(backlog["subscriptions"][0]["quarantined"], 1);
        assert_eq!(daemon.stop(), 0);
    }

    async fn a_lost_answer_is_asked_about_and_not_repeated(place) {
        with_crypto();
        let mut receiver = Receiver::start(|_| StatusCode::INTERNAL_SERVER_ERROR, true).await;
        let probed = format!("probe = \"{}\" }}", receiver.probe_url());
        let config = push_to(&receiver.url());
        let config = config.replace("/hook\" }", &format!("/hook\", {probed}"));
        place.configure(&config.replace("start =", "semantics = \"effect-once\"\nstart ="));
        let daemon = place.up(&["--migrate"]);
        place.run_with_input(&["send"], event("m1", "order.accepted", "o1", "1")).ended(0);
        receiver.next().await;
        place.run(&["operation", "watch", "m1", "--timeout", "30s"]).ended(0);
        assert_eq!(receiver.probed(), 1);
        assert!(receiver.is_idle());
        assert_eq!(daemon.stop(), 0);
    }

    async fn a_killed_daemon_is_followed_by_the_next(place) {
        with_crypto();
        let is_first = AtomicBool::new(true);
        let mut receiver = Receiver::start(
            move |_| match is_first.swap(false, Ordering::SeqCst) {
                true => StatusCode::SERVICE_UNAVAILABLE,
                false => StatusCode::OK,
            },
            false,
        )
        .await;
        place.configure(&push_to(&receiver.url()));
        let daemon = place.up(&["--migrate", "--lease", "1s"]);
        place.run_with_input(&["send"], event("m1", "order.accepted", "o1", "1")).ended(0);
        let first = receiver.next().await;
        daemon.signal(Signal::KILL);
        drop(daemon);
        let daemon = place.up(&["--lease", "1s"]);
        let second = receiver.next().await;
        assert_eq!(first.header("webhook-id"), second.header("webhook-id"));
        place.run(&["operation", "watch", "m1", "--timeout", "30s"]).ended(0);
        assert_eq!(daemon.stop(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_with_tokens_serves_only_who_has_one() {
    with_crypto();
    let receiver = Receiver::start(|_| StatusCode::OK, false).await;
    let place = Place::sqlite();
    place.write("ci.token", "0123456789abcdef0123\n");
    place.write("wrong.token", "xxxxxxxxxxxxxxxxxxxx\n");
    let tokens =
        "[[access.tokens]]\nname = \"ci\"\ntoken_file = \"ci.token\"\nscopes = [\"publish\"]\n";
    place.configure(&format!("{}\n{tokens}", push_to(&receiver.url())));
    let daemon = place.up(&["--migrate"]);
    let line = event("m1", "order.accepted", "o1", "1");
    let send = |token: &[&str]| {
        let mut args = vec!["send", "--url", &daemon.url];
        args.extend(token);
        place.run_with_input(&args, &line)
    };
    send(&[]).ended(1).says(&["OW1026", "401"]);
    send(&["--token-file", "wrong.token"])
        .ended(1)
        .says(&["OW1026", "401"]);
    send(&["--token-file", "none.token"])
        .ended(1)
        .says(&["OW1003", "none.token"]);
    send(&["--token-file", "ci.token"]).ended(0);
    let undeclared = event("m2", "order.unknown", "o1", "1");
    let args = ["send", "--url", &daemon.url, "--token-file", "ci.token"];
    place
        .run_with_input(&args, &undeclared)
        .ended(5)
        .says(&["line 1: /type:"]);
    assert_eq!(get(&format!("{}/livez", daemon.url)).await, 200);
    assert_eq!(get(&format!("{}/v1/operations/m1", daemon.url)).await, 401);
    assert_eq!(daemon.stop(), 0);
}

/// Waits until a daemon says that it is stopping.
async fn is_stopping(url: &str) {
    let client = reqwest::Client::builder().timeout(SOON).build().unwrap();
    loop {
        let response = client.get(format!("{url}/readyz")).send().await.unwrap();
        if response.status() == 503 {
            assert!(response.text().await.unwrap().contains("stopping"));
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_flight_is_finished_before_the_end() {
    with_crypto();
    let (arrived, arrivals) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel();
    let released = std::sync::Mutex::new(released);
    let mut receiver = Receiver::start(
        move |_| {
            arrived.send(()).unwrap();
            let released = || released.lock().unwrap().recv_timeout(SOON);
            tokio::task::block_in_place(released).unwrap();
            StatusCode::OK
        },
        false,
    )
    .await;
    let place = Place::sqlite();
    place.configure(&push_to(&receiver.url()));
    let daemon = place.up(&["--migrate"]);
    place
        .run_with_input(&["send"], event("m1", "order.accepted", "o1", "1"))
        .ended(0);
    tokio::task::block_in_place(|| arrivals.recv_timeout(SOON)).unwrap();
    daemon.signal(Signal::TERM);
    is_stopping(&daemon.url).await;
    release.send(()).unwrap();
    assert_eq!(daemon.ended(), 0);
    receiver.next().await;
    let shown = place
        .run(&["operation", "watch", "m1", "--timeout", "1ms"])
        .ended(0);
    assert!(shown.out.contains("delivered"), "{shown:#?}");
    // The next one has nothing to do.
    let daemon = place.up(&[]);
    assert_eq!(daemon.stop(), 0);
    assert!(receiver.is_idle());
}

#[tokio::test(flavor = "multi_thread")]
async fn it_runs_without_anything_to_push() {
    with_crypto();
    let place = Place::sqlite();
    place.configure(crate::place::ONE_TYPE);
    let daemon = place.up(&["--migrate", "--log-format", "json"]);
    let line = event("m1", "order.accepted", "o1", "1");
    place
        .run_with_input(&["send", "--url", &daemon.url], &line)
        .ended(0);
    assert_eq!(get(&format!("{}/readyz", daemon.url)).await, 200);
    assert_eq!(daemon.stop(), 0);
    let shown = place.run(&["operation", "show", "m1"]).ended(0);
    assert!(shown.out.contains("no subscription takes it"), "{shown:#?}");
    for line in std::fs::read_to_string(place.path("up.log"))
        .unwrap()
        .lines()
    {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_it_at_once() {
    with_crypto();
    let (arrived, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    // Takes connections and never answers.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let silent = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
            arrived.send(()).unwrap();
        }
    });
    let place = Place::sqlite();
    place.configure(&push_to(&format!("http://{address}/hook")));
    let daemon = place.up(&["--migrate", "--grace", "1h"]);
    place
        .run_with_input(&["send"], event("m1", "order.accepted", "o1", "1"))
        .ended(0);
    tokio::time::timeout(SOON, arrivals.recv())
        .await
        .unwrap()
        .unwrap();
    daemon.signal(Signal::TERM);
    // It says that it is no longer ready while it waits for the answer.
    is_stopping(&daemon.url).await;
    daemon.signal(Signal::INT);
    assert_eq!(daemon.ended(), 1);
    silent.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_is_named() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let place = Place::sqlite();
    place.configure(&push_to("http://127.0.0.1:9/hook"));
    let text = std::fs::read_to_string(place.path("onceward.toml")).unwrap();
    place.write("onceward.toml", &text.replace("127.0.0.1:0", &address));
    place
        .run(&["up", "--migrate"])
        .ended(1)
        .says(&["OW1020", &address]);
    place.run(&["doctor", "--offline"]).ended(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_manager_is_told() {
    let place = Place::sqlite();
    place.configure(&push_to("http://127.0.0.1:9/hook"));
    place.run(&["migrate"]).ended(0);
    let path = place.path("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    let daemon = place.up_with_env(&[], &[("NOTIFY_SOCKET", path.to_str().unwrap())]);
    let mut buffer = [0; 64];
    let length = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"READY=1");
    assert_eq!(daemon.stop(), 0);
    let length = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"STOPPING=1");
}
