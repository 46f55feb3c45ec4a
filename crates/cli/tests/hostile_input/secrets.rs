//! Marked passwords, tokens and payloads: none of them may be found in anything that is written.

use axum::http::StatusCode;
use serde_json::json;

use crate::place::{Place, Ran, event, push_to};
use crate::receiver::{Answer, Receiver};
use crate::{on_both_stores, raw};

/// No real secret contains it.
const MARK: &str = "MARKED7f3a";

#[track_caller]
fn unmarked(what: &str, text: &str) {
    if let Some(at) = text.find(MARK) {
        let (from, to) = (at.saturating_sub(200), (at + 60).min(text.len()));
        let around = String::from_utf8_lossy(&text.as_bytes()[from..to]);
        panic!("{what} holds the mark: …{around}…");
    }
}

#[track_caller]
fn nothing_marked(args: &[&str], ran: &Ran) {
    unmarked(&format!("output of {args:?}"), &ran.out);
    unmarked(&format!("errors of {args:?}"), &ran.err);
}

/// Addresses that nobody answers at, or that are none, each with a password.
fn addresses() -> Vec<String> {
    [
        "postgres://app:MARK@127.0.0.1:1/orders",
        "postgres://app:MARK@127.0.0.1:1/orders?sslmode=require&application_name=x",
        "postgres://app@127.0.0.1:1/orders?password=MARK",
        "postgres://app:MARK@no-such-host.invalid/orders",
        "postgres://app:MARK@127.0.0.1:99999/orders",
        "postgres://app:MARK@[::1/orders",
        "postgres://app:MA/MARK/RK@127.0.0.1:1/orders",
        "postgres://app:12/MARK@127.0.0.1:1/orders",
        "postgres://app:x#MARK@127.0.0.1:1/orders",
        "postgres://app:x?MARK@127.0.0.1:1/orders",
        "postgres://app:%zzMARK@127.0.0.1:1/orders",
        "postgres://app:MARK@127.0.0.1:1/orders?sslmode=nonsense",
        "postgres://app:a@b:MARK@127.0.0.1:1/orders",
        "postgresql://app:MARK@127.0.0.1:1",
        "postgre://app:MARK@127.0.0.1/orders",
        "mysql://app:MARK@127.0.0.1/orders",
        "app:MARK@127.0.0.1/orders",
        "host=127.0.0.1 port=1 user=app password=MARK",
    ]
    .map(|address| address.replace("MARK", MARK))
    .into()
}

#[test]
fn a_password_of_a_store_is_in_no_output() {
    let place = Place::sqlite();
    let commands: [&[&str]; 7] = [
        &["backlog"],
        &["migrate"],
        &["up"],
        &["send"],
        &["operation", "show", "x"],
        &["quarantine", "list"],
        &["doctor", "--offline"],
    ];
    let verbose = [("ONCEWARD_LOG", "trace")];
    for address in addresses() {
        place.write_secret("store.url", &format!("{address}\n"));
        place.write(
            "onceward.toml",
            "[store]\nurl_file = \"store.url\"\n[http]\nlisten = \"127.0.0.1:0\"\n",
        );
        for (n, command) in commands.iter().enumerate() {
            // Each address through each command, by the file and then by the command line.
            let on_line = [command, &["--store", &address][..]].concat();
            let as_json = [command, &["--json"][..]].concat();
            let args = if n % 2 == 0 { on_line } else { as_json };
            let ran = place.run_with_env(&args, &verbose);
            assert_ne!(ran.code, 0, "{ran:#?}");
            nothing_marked(&command[..1], &ran);
        }
        let from_env = [verbose[0], ("ONCEWARD_STORE", address.as_str())];
        nothing_marked(&["backlog"], &place.run_with_env(&["backlog"], &from_env));
        // Written where it does not belong, its line is not repeated.
        place.write(
            "onceward.toml",
            &format!("[store]\nurl = {}\n", json!(address)),
        );
        let ran = place.run_with_env(&["backlog"], &verbose);
        assert_ne!(ran.code, 0, "{ran:#?}");
        nothing_marked(&["backlog"], &ran);
    }
    // Host and database are still named.
    let args = [
        "backlog",
        "--store",
        &format!("postgres://app:{MARK}@127.0.0.1:1/orders"),
    ];
    place
        .run(&args)
        .ended(1)
        .says(&["OW1005", "127.0.0.1:1", "orders", "app"]);
}

#[test]
fn secrets_in_the_wrong_place_are_not_repeated() {
    let place = Place::sqlite();
    for text in [
        format!(
            "[store]\nurl = \"sqlite:x.db\"\n[[access.tokens]]\nname = \"a\"\ntoken = \"{MARK}\"\nscopes = [\"read\"]\n"
        ),
        format!(
            "[store]\nurl = \"sqlite:x.db\"\n[message.a]\n[subscription.s]\nmessages = [\"a\"]\npush = {{ url = \"http://127.0.0.1:1/\", secret = \"whsec_{MARK}\" }}\n"
        ),
        format!(
            "[store]\nurl = \"sqlite:x.db\"\n[message.a]\n[subscription.s]\nmessages = [\"a\"]\npush = {{ url = \"http://user:{MARK}@127.0.0.1:1/\" }}\n"
        ),
        format!("[store]\nurl = \"sqlite:x.db\"\npassword = \"{MARK}\"\n"),
        format!("[store]\nurl = \"postgres://app:{MARK}@h/d\nsource = 1\n"),
        format!("[store]\nurl = [\"postgres://app:{MARK}@h/d\"]\n"),
    ] {
        place.write("onceward.toml", &text);
        for args in [
            &["up"][..],
            &["up", "--json"],
            &["doctor", "--offline"],
            &["doctor", "--offline", "--json"],
        ] {
            let ran = place.run(args);
            assert_ne!(ran.code, 0, "{ran:#?}");
            nothing_marked(args, &ran);
        }
    }
    // Secrets that are files, and unusable.
    place.write_secret("bad.secret", &format!("whsec_{MARK}!!\n"));
    place.configure(
        &push_to("http://127.0.0.1:1/")
            .replace("push = {", "push = { secret_file = \"bad.secret\","),
    );
    let ran = place.run(&["up", "--migrate"]).ended(1);
    nothing_marked(&["up"], &ran);
    ran.says(&["OW1003", "bad.secret"]);
    place.write_secret("bad.token", &format!("{MARK} with blanks\n"));
    place.configure(
        "[[access.tokens]]\nname = \"ci\"\ntoken_file = \"bad.token\"\nscopes = [\"read\"]\n",
    );
    let ran = place.run(&["up", "--migrate"]).ended(1);
    nothing_marked(&["up"], &ran);
    ran.says(&["OW1003"]);
}

on_both_stores! {
    async fn payloads_results_and_tokens_are_in_no_log(place) {
        let token = format!("{MARK}-0123456789");
        place.write_secret("ci.token", &format!("{token}\n"));
        place.write_secret("hook.secret", "whsec_TUFSS0VEN2YzYTAxMjM0NTY3ODlhYmNkZWYwMTIzNDU=\n");
        let answer = |request: &crate::receiver::Received| match request.header("webhook-id") {
            "permanent" => Answer::saying(400, "{\"error\": \"MARKED7f3a in the answer\"}"),
            "rejected" => Answer::saying(422, "{\"error\": \"MARKED7f3a in the answer\"}"),
            "transient" => Answer::saying(500, "MARKED7f3a in the answer"),
            _ => StatusCode::OK.into(),
        };
        let receiver = Receiver::start(answer, false).await;
        let push = format!("push = {{ secret_file = \"hook.secret\", url = \"{}?key={MARK}\" }}", receiver.url());
        let config = push_to("x").replace("push = { url = \"x\" }", &push).replace("cap = \"50ms\"", "cap = \"50ms\", attempts_max = 2");
        let tokens = "[[access.tokens]]\nname = \"ci\"\ntoken_file = \"ci.token\"\nscopes = [\"publish\", \"read\"]\n";
        place.configure(&format!("{config}\n{tokens}"));
        let daemon = place.up_with_env(&["--migrate"], &[("ONCEWARD_LOG", "trace")]);
        let url = daemon.url.as_str();
        let bearer = format!("Authorization: Bearer {token}");
        let data = format!("{{\"card\": \"{MARK}\"}}");
        for id in ["good", "permanent", "rejected", "transient"] {
            let mut body = event(id, "order.accepted", id, &data);
            body.insert_str(1, &format!("\"note\":\"{MARK}\","));
            let posted = raw::structured(url, &[&bearer], &body);
            assert_eq!(posted.status, 202, "{posted:#?}");
            unmarked("an answer", &posted.body);
        }
        // Broken, with the mark in the broken part.
        let other = event("good", "order.accepted", "o", &format!("\"{MARK}\""));
        let posted = raw::structured(url, &[&bearer], other);
        posted.problem(422, "OW2005");
        unmarked("a refusal", &posted.body);
        for body in [
            format!("{{\"specversion\":\"1.0\",\"{MARK}"),
            format!("{{\"specversion\":\"{MARK}\"}}"),
            event("x", "order.accepted", "o", &format!("{{{MARK}}}")),
            event("x", "order.accepted", "o", &format!("\"{MARK}")),
            event("x", "order.accepted", "o", "1").replace("\"data\"", &format!("\"time\":\"{MARK}\",\"data\"")),
        ] {
            let posted = raw::structured(url, &[&bearer], &body);
            assert!([400, 422].contains(&posted.status), "{posted:#?}");
            unmarked("a refusal", &posted.body);
            let ran = place.run_with_input(&["send"], &body).ended(5);
            nothing_marked(&["send"], &ran);
            let ran = place.run_with_input(&["send", "--json"], &body).ended(5);
            nothing_marked(&["send", "--json"], &ran);
        }
        let wrong = format!("Authorization: Bearer {MARK}-wrong-0123456789");
        raw::structured(url, &[&wrong], "{}").problem(401, "OW2010");
        for (id, code) in [("good", 0), ("permanent", 1), ("rejected", 1), ("transient", 1)] {
            nothing_marked(&["operation", "watch", id], &place.watch(id, code));
            let show = raw::request(url, &format!("GET /v1/operations/{id}"), &[&bearer], b"");
            assert_eq!(show.status, 200, "{show:#?}");
            unmarked("an operation", &show.body);
        }
        for args in [
            &["operation", "show", "rejected"][..],
            &["operation", "show", "permanent", "--json"],
            &["quarantine", "list"],
            &["quarantine", "list", "--json"],
            &["quarantine", "show", "1"],
            &["quarantine", "show", "1", "--json"],
            &["quarantine", "show", "2"],
            &["backlog"],
            &["backlog", "--json"],
            &["subscription", "list", "--json"],
            &["doctor", "--json"],
            &["doctor"],
        ] {
            nothing_marked(args, &place.run_with_env(args, &[("ONCEWARD_LOG", "trace")]));
        }
        assert_eq!(daemon.stop(), 0);
        let log = place.read("up.log");
        assert!(log.len() > 1_000, "everything is logged: {log}");
        unmarked("the log", &log);
        unmarked("the log", &log.replace("TUFSS0VEN2YzYTAx", MARK));
    }
}
