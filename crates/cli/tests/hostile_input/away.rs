//! A database that is away: what was tried and where, and nothing acknowledged.

use axum::http::StatusCode;
use onceward_testkit::postgres::PostgresServer;

use crate::place::{ONE_TYPE, Place, event, push_to};
use crate::raw;
use crate::receiver::Receiver;

/// A port at which nobody listens.
fn closed_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn each_command_says_what_it_tried_and_where() {
    let place = Place::sqlite();
    place.configure(ONE_TYPE);
    let port = closed_port();
    let away = format!("postgres://app@127.0.0.1:{port}/orders");
    let gone = format!("sqlite:{}", place.path("no/such/folder/x.db").display());
    let at = format!("127.0.0.1:{port}/orders");
    let commands: [&[&str]; 9] = [
        &["send"],
        &["backlog"],
        &["up"],
        &["up", "--migrate"],
        &["migrate"],
        &["operation", "show", "x"],
        &["operation", "watch", "x"],
        &["quarantine", "list"],
        &["quarantine", "show", "1"],
    ];
    let line = event("m1", "order.accepted", "o1", "1");
    for command in commands {
        let args = [command, &["--store", &away][..]].concat();
        let ran = place.run_with_input(&args, &line).ended(1);
        assert!(ran.out.is_empty(), "{ran:#?}");
        ran.says(&["OW1005", "connect to the database", &at]);
        let args = [command, &["--store", &away, "--json"][..]].concat();
        let ran = place.run_with_input(&args, &line).ended(1);
        let error: serde_json::Value =
            serde_json::from_str(ran.err.lines().last().unwrap()).unwrap();
        assert_eq!(error["error"]["code"], "OW1005", "{ran:#?}");
        let args = [command, &["--store", &gone][..]].concat();
        let ran = place.run_with_input(&args, &line).ended(1);
        assert!(ran.out.is_empty(), "{ran:#?}");
        ran.says(&["OW1005", "no/such/folder/x.db"]);
    }
    let endpoint = format!("http://127.0.0.1:{port}");
    let ran = place
        .run_with_input(&["send", "--url", &endpoint], &line)
        .ended(1);
    ran.says(&["OW1026", &endpoint]);
    // A file that is no database.
    place.write("text.db", &"this is no database\n".repeat(100));
    for command in commands {
        let args = [command, &["--store", "sqlite:text.db"][..]].concat();
        let ran = place.run_with_input(&args, &line).ended(1);
        ran.says(&["text.db", "not a database"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_acknowledged_while_it_is_away_and_everything_after() {
    let mut server = PostgresServer::start().await;
    let mut receiver = Receiver::start(|_| StatusCode::OK, false).await;
    let place = Place::sqlite();
    place.write_secret("store.url", &server.url("postgres"));
    place.write(
        "onceward.toml",
        &format!(
            "[store]\nurl_file = \"store.url\"\n[http]\nlisten = \"127.0.0.1:0\"\n{}",
            push_to(&receiver.url())
        ),
    );
    let daemon = place.up(&["--migrate", "--lease", "5s"]);
    let url = daemon.url.clone();
    let one = |id: &str| event(id, "order.accepted", "o1", "1");
    assert_eq!(raw::structured(&url, &[], one("before")).status, 202);
    assert_eq!(receiver.next().await.header("webhook-id"), "before");
    place.watch("before", 0);
    server.kill().await;
    // At once, because each waits until a connection could not be had.
    std::thread::scope(|scope| {
        for id in ["away-1", "away-2"] {
            let (url, one) = (&url, &one);
            scope.spawn(move || {
                let posted = raw::structured(url, &[], one(id));
                let problem = posted.problem(503, "OW2020");
                assert_eq!(problem["retryable"], true, "{problem}");
                let head = posted.head.to_ascii_lowercase();
                assert!(head.contains("retry-after: 1"), "{posted:#?}");
            });
        }
        scope.spawn(|| {
            let asked = raw::request(&url, "GET /v1/operations/before", &[], b"");
            asked.problem(503, "OW2020");
        });
    });
    assert_eq!(raw::request(&url, "GET /livez", &[], b"").status, 200);
    let ready = raw::request(&url, "GET /readyz", &[], b"");
    assert_eq!(ready.status, 503, "{ready:#?}");
    place
        .run_with_input(&["send"], one("away-3"))
        .ended(1)
        .says(&["OW1005"]);
    let log = place.read("up.log");
    let said = "could not begin a transaction";
    let line = log.lines().find(|line| line.contains(said)).unwrap();
    assert!(line.contains("cause="), "{line}");
    server.restart().await;
    // As soon as it is back, without a restart of the daemon.
    place.until("messages are accepted again", || {
        (raw::structured(&url, &[], one("after")).status == 202).then_some(())
    });
    assert_eq!(receiver.next().await.header("webhook-id"), "after");
    place.watch("after", 0);
    // What was not acknowledged is not there.
    for id in ["away-1", "away-2", "away-3"] {
        place
            .run(&["operation", "show", id])
            .ended(1)
            .says(&["OW1023"]);
    }
    place.until("it is ready again", || {
        (raw::request(&url, "GET /readyz", &[], b"").status == 200).then_some(())
    });
    assert_eq!(daemon.stop(), 0);
    assert!(receiver.is_idle());
}
