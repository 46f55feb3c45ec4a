//! Rows that other programs may insert: every column with something unusual in it. Each is refused
//! by the database, delivered as it is, or put aside with a case; the log goes on in any case.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use axum::http::StatusCode;
use sqlx::Connection as _;

use crate::on_both_stores;
use crate::place::Place;
use crate::receiver::{Received, Receiver};

/// A literal.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Text that does not compress.
fn noise(length: usize, first: u32, count: u32) -> String {
    let mut random = fastrand::Rng::with_seed(7);
    let one = |_| char::from_u32(first + random.u32(..count)).unwrap();
    (0..length).map(one).collect()
}

/// Name, and columns with their expressions beside the five that every row has.
fn rows(is_sqlite: bool) -> Vec<(String, Vec<(&'static str, String)>)> {
    let mut all: Vec<(String, Vec<(&'static str, String)>)> = Vec::new();
    let mut add = |name: &str, column: &'static str, value: String| {
        all.push((name.to_owned(), vec![(column, value)]));
    };
    for (name, text) in [
        ("empty", String::new()),
        ("lines", "a\r\nEvil: 1\n\nb".to_owned()),
        ("controls", "\u{1}\u{7f}\u{80}".to_owned()),
        ("percent", "50% \"off\" %0d%0a".to_owned()),
        ("emoji", "🦀.é.".to_owned()),
        ("noncharacter", "\u{fffe}".to_owned()),
        ("quote", "x' OR '1'='1' -- %_".to_owned()),
        ("2000-characters", noise(2_000, 33, 90)),
        ("2000-wide-characters", noise(2_000, 0x4e00, 20_000)),
    ] {
        for column in [
            "aggregateid",
            "aggregatetype",
            "partitionkey",
            "operationid",
            "source",
        ] {
            add(&format!("{column}-{name}"), column, quoted(&text));
        }
    }
    for (n, headers) in [
        r#"{"A b": "x"}"#,
        r#"{"x": {"y": [1]}}"#,
        r#"{"x": null}"#,
        r#"{"x": 1.50}"#,
        r#"{"x": true}"#,
        r#"{"x": 123456789012345678901234567890}"#,
        r#"{"id": "forged"}"#,
        r#"{"host": "evil.example"}"#,
        r#"{"contentlength": "0"}"#,
        r#"{"content-length": "0"}"#,
        r#"{"authorization": "Bearer x"}"#,
        r#"{"x": "a\r\nEvil: 1"}"#,
        r#"{"x": "\u0001"}"#,
        r#"{"datacontenttype": "text/html\r\nEvil: 1"}"#,
        r#"{"datacontenttype": ""}"#,
        r#"{"datacontenttype": "text/html; charset=x"}"#,
        r#"{"x": "\ud800"}"#,
        r#"{"x": "\u0000"}"#,
        r#"{"a": "1", "a": "2"}"#,
        r#"{"recordedtime": "x"}"#,
        r#"{"sequence": "x"}"#,
        r#"{"webhookid": "x"}"#,
        r#"{"": ""}"#,
        r#"{"data": "x"}"#,
        "{}",
        "[]",
        "\"x\"",
        "null",
    ]
    .iter()
    .enumerate()
    {
        add(&format!("headers-{n}"), "headers", quoted(headers));
    }
    add(
        "headers-long",
        "headers",
        quoted(&format!("{{\"x\": \"{}\"}}", "é".repeat(20_000))),
    );
    let many: Vec<String> = (0..300).map(|n| format!("\"h{n}\": \"v\"")).collect();
    add(
        "headers-many",
        "headers",
        quoted(&format!("{{{}}}", many.join(", "))),
    );
    for (column, values) in [
        ("schemaversion", ["-1", "2147483647", "-2147483648"]),
        ("aggregateversion", ["-1", "9223372036854775807", "0"]),
        ("priority", ["-32768", "32767", "40000"]),
    ] {
        for value in values {
            add(&format!("{column}{value}"), column, value.to_owned());
        }
    }
    let times: &[&str] = if is_sqlite {
        &[
            "'9999-12-31T23:59:59Z'",
            "'0000-01-01T00:00:00Z'",
            "9223372036854775807",
            "-9223372036854775807",
            "253402300800000000",
            "'now'",
            "'12:00'",
            "'2451545'",
            "'infinity'",
            "''",
            "2.5",
            "x'00'",
            "'2026-02-30T00:00:00Z'",
            "'2026-02-28T24:00:00Z'",
            "'2026-02-28'",
            "'2026-02-28 12:00:00'",
            "'2026-02-28T12:00:00.123456+01:00'",
        ]
    } else {
        &[
            "'9999-12-31T23:59:59Z'",
            "'10000-01-01T00:00:00Z'",
            "'294276-12-31T00:00:00Z'",
            "'4713-01-01 00:00:00+00 BC'",
            "'0044-03-15 00:00:00+00 BC'",
            "'infinity'",
            "'-infinity'",
            "'2016-12-31T23:59:60Z'",
        ]
    };
    for (n, time) in times.iter().enumerate() {
        for column in ["occurred_at", "expires_at"] {
            add(&format!("{column}-{n}"), column, (*time).to_owned());
        }
    }
    if is_sqlite {
        add("id-not-utf8", "id", "CAST(x'ff41' AS TEXT)".to_owned());
        add("id-nul", "id", "'a' || char(0) || 'b'".to_owned());
        add(
            "key-not-utf8",
            "aggregateid",
            "CAST(x'ff41' AS TEXT)".to_owned(),
        );
        add("key-nul", "aggregateid", "'a' || char(0) || 'b'".to_owned());
        add(
            "payload-not-utf8",
            "payload",
            "CAST(x'22ff22' AS TEXT)".to_owned(),
        );
        add(
            "payload-nul",
            "payload",
            "'\"a' || char(0) || 'b\"'".to_owned(),
        );
        add("seq", "seq", "1".to_owned());
    }
    let moments = match is_sqlite {
        true => ["0", "9223372036854775807"],
        false => ["'1970-01-01Z'", "'infinity'"],
    };
    for moment in moments {
        add(
            &format!("recorded {}", moment.replace('\'', "")),
            "recorded_at",
            moment.to_owned(),
        );
    }
    all
}

/// Inserts them one by one, with a good row after each. Returns what the database took.
async fn insert(place: &Place) -> BTreeSet<String> {
    let mut taken = BTreeSet::new();
    let is_sqlite = place.is_sqlite();
    let url = place.store_url();
    let mut sqlite = None;
    let mut postgres = None;
    if is_sqlite {
        sqlite = Some(sqlx::SqliteConnection::connect(&url).await.unwrap());
    } else {
        postgres = Some(sqlx::PgConnection::connect(&url).await.unwrap());
    }
    for (name, unusual) in rows(is_sqlite) {
        for (name, unusual) in [
            (name.clone(), unusual),
            (format!("good after {name}"), Vec::new()),
        ] {
            let mut columns = BTreeMap::from([
                ("id", quoted(&name)),
                ("aggregatetype", "'order'".to_owned()),
                ("aggregateid", quoted(&name)),
                ("type", "'order.accepted'".to_owned()),
                ("payload", format!("'{{\"name\": \"{name}\", \"n\": 1.0}}'")),
            ]);
            columns.extend(unusual);
            let names: Vec<_> = columns.keys().copied().collect();
            let values: Vec<_> = columns.values().map(String::as_str).collect();
            let table = if is_sqlite {
                "onceward_outbox"
            } else {
                "onceward.outbox"
            };
            let sql = format!(
                "insert into {table} ({}) values ({})",
                names.join(", "),
                values.join(", ")
            );
            let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
            let inserted = match (&mut sqlite, &mut postgres) {
                (Some(connection), _) => sql.execute(connection).await.map(drop),
                (_, Some(connection)) => sql.execute(connection).await.map(drop),
                _ => unreachable!(),
            };
            match inserted {
                Ok(()) => drop(taken.insert(name)),
                Err(error) => assert!(!name.starts_with("good"), "{name}: {error}"),
            }
        }
    }
    taken
}

/// One subscription whose target fails once and then takes a message, and one that refuses all.
/// Without breakers: the receiver fails every message once, which none of them survives quickly.
fn config(url: &str) -> String {
    let mut config = "[message.\"order.accepted\"]\n".to_owned();
    for name in ["hook", "never"] {
        config.push_str(&format!(
            "[subscription.{name}]\nmessages = [\"order.accepted\"]\nstart = \"earliest\"\n\
             lanes = 16\nretry = {{ base = \"1ms\", cap = \"5ms\" }}\n\
             breaker = {{ messages_min = 0 }}\n\
             push = {{ url = \"{url}/{name}\" }}\n"
        ));
    }
    config
}

on_both_stores! {
    async fn unusual_rows_never_stop_the_log(place) {
        let seen = Mutex::new(BTreeSet::new());
        let answering = move |request: &Received| {
            let is_first = seen.lock().unwrap().insert((request.path.clone(), request.body.clone()));
            match (request.path.as_str(), is_first) {
                ("/hook/never", _) => StatusCode::BAD_REQUEST,
                (_, true) => StatusCode::INTERNAL_SERVER_ERROR,
                (_, false) => StatusCode::OK,
            }
        };
        let mut receiver = Receiver::start(answering, false).await;
        place.configure(&config(&receiver.url()));
        place.run(&["migrate"]).ended(0);
        let taken = insert(&place).await;
        let daemon = place.up(&[]);
        let backlog = place.until("everything has ended", || {
            let backlog = place.run(&["backlog", "--json"]).ended(0).json();
            let subscriptions = backlog["subscriptions"].as_array().unwrap();
            let is_over = |s: &serde_json::Value| {
                let deferred = s["deferred"].as_object().unwrap();
                s["waiting"] == 0 && deferred.values().all(|count| *count == 0)
            };
            let has_both = subscriptions.len() == 2;
            (has_both && subscriptions.iter().all(is_over)).then_some(backlog)
        });
        let count = |name: &str| {
            let subscriptions = backlog["subscriptions"].as_array().unwrap();
            let found = subscriptions.iter().find(|s| s["subscription"] == name).unwrap();
            found["quarantined"].as_u64().unwrap() as usize
        };
        assert_eq!(count("never"), taken.len());
        // Delivered with the bytes that were inserted, or put aside.
        let mut delivered = BTreeMap::<String, u32>::new();
        for request in receiver.drain() {
            for (name, value) in &request.headers {
                assert!(!name.as_str().starts_with("evil"), "{:?}", request.headers);
                assert!(value.to_str().is_ok(), "{:?}", request.headers);
            }
            assert_eq!(request.headers.get_all("host").iter().count(), 1);
            assert!(!request.headers.contains_key("authorization"));
            if request.path == "/hook/hook" {
                let body = String::from_utf8_lossy(&request.body).into_owned();
                *delivered.entry(body).or_default() += 1;
            }
        }
        let is_good = |name: &&String| name.starts_with("good");
        for name in taken.iter().filter(is_good) {
            let body = format!("{{\"name\": \"{name}\", \"n\": 1.0}}");
            assert_eq!(delivered.get(&body), Some(&2), "{name}");
        }
        assert_eq!(delivered.len() + count("hook"), taken.len());
        let listed = place.run(&["quarantine", "list", "--json", "--subscription", "hook", "--limit", "10000"]);
        let listed = listed.ended(0).json();
        for case in listed["cases"].as_array().unwrap() {
            let code = case["failure"]["code"].as_str().unwrap();
            assert!(["push_event", "http_431"].contains(&code), "{case}");
            let id = case["case_id"].to_string();
            place.run(&["quarantine", "reveal", &id, "--why", "a test", "--json"]).ended(0);
            place.run(&["quarantine", "reveal", &id, "--why", "a test"]).ended(0);
        }
        assert_eq!(daemon.stop(), 0);
        // An attribute named "A b" cannot be a header.
        let named = listed["cases"].as_array().unwrap().iter().any(|case| {
            let message = case["failure"]["message"].as_str().unwrap();
            message.contains("header ce-A b") && !message.contains("\"x\"")
        });
        assert!(named, "{listed}");
    }
}
