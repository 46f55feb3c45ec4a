//! Data that are easily altered on the way, through every entrance.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::StatusCode;
use serde_json::Value;
use sqlx::Connection as _;

use crate::place::{Place, event, push_to};
use crate::receiver::Receiver;
use crate::{on_both_stores, raw};

/// Room for the largest.
const HTTP: &str = "body_bytes_max = 8388608\n";

fn nested(depth: usize) -> String {
    format!("{}1{}", "[".repeat(depth), "]".repeat(depth))
}

fn text_of(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes - 2))
}

/// JSON that is well-formed, and changes when it is read and written again.
fn carried() -> Vec<(&'static str, String)> {
    let texts = [
        ("largest-i64", "9223372036854775807"),
        ("past-2-53", "{\"n\": 9007199254740993}"),
        ("long-decimal", "0.1234567890123456789"),
        ("exponent", "1E+2"),
        ("minus-zero", "-0"),
        ("one-point-zero", "[1.0, 1e0, 10e-1, 1]"),
        ("infinite-as-double", "1e400"),
        (
            "sixty-digits",
            "123456789012345678901234567890123456789012345678901234567890",
        ),
        ("duplicate-keys", "{\"a\":1,\"a\":2,\"a\":1}"),
        ("unordered-keys", "{\"b\":1,\"a\":2,\"\":3}"),
        ("blanks", " { \"a\" :\t[ ] ,  \"b\":{ } } "),
        ("nul-in-value", "{\"s\":\"a\\u0000b\"}"),
        ("nul-in-key", "{\"a\\u0000b\":1}"),
        ("lone-surrogate", "{\"s\":\"\\ud800\"}"),
        ("reversed-surrogates", "[\"\\udc00\\ud800\"]"),
        ("escaped-ascii", "\"\\u0041\\/\\b\""),
        (
            "noncharacters",
            "\"\u{fffe}\u{ffff}\u{10ffff}\u{7f}\u{2028}\"",
        ),
        ("decomposed", "\"e\u{301} \u{e9}\""),
        (
            "script",
            "\"</script><!-- ' ; drop table orders; -- {{7*7}} %s $(id)\"",
        ),
        ("empty-string", "\"\""),
        ("null", "null"),
    ];
    let mut all: Vec<_> = texts.map(|(name, text)| (name, text.to_owned())).into();
    all.extend([
        ("nested-512", nested(512)),
        ("bytes-7900", text_of(7_900)),
        ("bytes-8000", text_of(8_000)),
        ("bytes-8100", text_of(8_100)),
        ("bytes-200000", text_of(200_000)),
        (
            "three-byte-characters",
            format!("\"{}\"", "€".repeat(4_000)),
        ),
        ("bytes-5-mb", text_of(5_000_000)),
    ]);
    all
}

/// What a body that is declared as something else than JSON may be.
fn opaque() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("every-byte", (0..=255).collect()),
        ("nul", vec![0]),
        ("not-utf8", b"\"\xff\xfe\xc0\xaf\xed\xa0\x80\"".to_vec()),
        (
            "line-ends",
            b"\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n".to_vec(),
        ),
        ("nothing", Vec::new()),
        ("nested-10000", nested(10_000).into_bytes()),
    ]
}

/// What is no JSON, or more of it than is accepted.
fn refused() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("nested-513", nested(513).into_bytes()),
        ("nested-10000", nested(10_000).into_bytes()),
        ("raw-nul", b"\"a\0b\"".to_vec()),
        ("raw-control", b"\"a\x01b\"".to_vec()),
        ("not-utf8", b"\"\xff\"".to_vec()),
        ("cesu", b"\"\xed\xa0\x80\"".to_vec()),
        ("not-closed", b"{\"a\":".to_vec()),
        ("nan", b"NaN".to_vec()),
        ("comma", b"[1,]".to_vec()),
        ("comment", b"/* */ 1".to_vec()),
        ("half-escape", b"\"\\u12\"".to_vec()),
        ("leading-zero", b"01".to_vec()),
        ("two-texts", b"1 2".to_vec()),
        ("mark", b"\xef\xbb\xbf1".to_vec()),
        ("single-quotes", b"{'a':1}".to_vec()),
    ]
}

/// An event with any bytes as its data.
fn line(id: &str, data: &[u8]) -> Vec<u8> {
    let whole = event(id, "order.accepted", id, "?");
    let (head, tail) = whole.split_once('?').unwrap();
    [head.as_bytes(), data, tail.as_bytes()].concat()
}

/// Inserts rows with JSON payloads as any client would. Returns the ids of those that were taken.
async fn insert(place: &Place, rows: &[(String, Vec<u8>)]) -> BTreeSet<String> {
    let mut taken = BTreeSet::new();
    let columns = "(id, aggregatetype, aggregateid, type, payload)";
    let path = place.path("onceward.db");
    if place.is_sqlite() {
        let url = format!("sqlite:{}", path.display());
        let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
        for (id, data) in rows {
            let sql = format!(
                "INSERT INTO onceward_outbox {columns}
                 VALUES (?1, 'order', ?1, 'order.accepted', CAST(?2 AS TEXT))"
            );
            let query = sqlx::query(sqlx::AssertSqlSafe(sql))
                .bind(id)
                .bind(data.as_slice());
            if query.execute(&mut connection).await.is_ok() {
                taken.insert(id.clone());
            }
        }
        connection.close().await.unwrap();
        return taken;
    }
    let mut connection = sqlx::PgConnection::connect(place.database_url())
        .await
        .unwrap();
    for (id, data) in rows {
        let Ok(data) = std::str::from_utf8(data) else {
            continue;
        };
        let sql = format!(
            "insert into onceward.outbox {columns}
             values ($1, 'order', $1, 'order.accepted', $2::text::json)"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(id).bind(data);
        if query.execute(&mut connection).await.is_ok() {
            taken.insert(id.clone());
        }
    }
    connection.close().await.unwrap();
    taken
}

/// Receives as many messages as there are expected, each with exactly its bytes.
async fn all_arrive(receiver: &mut Receiver, mut expected: BTreeMap<String, Vec<u8>>) {
    while !expected.is_empty() {
        let request = receiver.next().await;
        let id = request.header("webhook-id");
        let data = expected
            .remove(id)
            .unwrap_or_else(|| panic!("{id} is not expected"));
        let is_same = request.body == data;
        assert!(
            is_same,
            "{id}: {} bytes became {}",
            data.len(),
            request.body.len()
        );
    }
}

on_both_stores! {
    async fn data_arrive_byte_for_byte_through_every_entrance(place) {
        let mut receiver = Receiver::start(|_| StatusCode::OK, false).await;
        place.configure_http(HTTP, &push_to(&receiver.url()));
        let daemon = place.up(&["--migrate"]);
        let mut expected = BTreeMap::new();
        let (mut lines, mut rows) = (Vec::new(), Vec::new());
        for (name, data) in carried() {
            let data = data.into_bytes();
            for entrance in ["sent", "posted", "headed", "row"] {
                let id = format!("{entrance}-{name}");
                // Inside a document the data begin and end with their first and last character.
                let kept = match entrance {
                    "sent" | "posted" => data.trim_ascii().to_vec(),
                    _ => data.clone(),
                };
                expected.insert(id.clone(), kept);
                match entrance {
                    "sent" => lines.extend(line(&id, &data)),
                    "posted" => {
                        let posted = raw::structured(&daemon.url, &[], line(&id, &data));
                        assert_eq!(posted.status, 202, "{id}: {posted:#?}");
                    }
                    "headed" => {
                        let json = ["Content-Type: application/json"];
                        let posted = raw::binary(&daemon.url, &id, &json, &data);
                        assert_eq!(posted.status, 202, "{id}: {posted:#?}");
                    }
                    _ => rows.push((id, data.clone())),
                }
            }
        }
        for (name, data) in opaque() {
            let id = format!("opaque-{name}");
            let media_type = ["Content-Type: application/octet-stream"];
            let posted = raw::binary(&daemon.url, &id, &media_type, &data);
            assert_eq!(posted.status, 202, "{id}: {posted:#?}");
            expected.insert(id, data);
        }
        place.run_with_input(&["send"], lines).ended(0);
        let taken = insert(&place, &rows).await;
        assert_eq!(taken.len(), rows.len(), "{taken:?}");
        all_arrive(&mut receiver, expected).await;
        place.nothing_is_left();
        assert_eq!(daemon.stop(), 0);
    }

    async fn what_is_no_json_is_refused_by_its_place_and_nothing_stays_behind(place) {
        let mut receiver = Receiver::start(|_| StatusCode::OK, false).await;
        place.configure_http(HTTP, &push_to(&receiver.url()));
        let daemon = place.up(&["--migrate"]);
        let (mut lines, mut rows) = (Vec::new(), Vec::new());
        for (name, data) in refused() {
            let id = format!("bad-{name}");
            let problem = raw::structured(&daemon.url, &[], line(&id, &data)).problem(400, "OW2001");
            // What is no UTF-8 or no JSON as a whole has no place inside.
            let pointer = problem["pointer"].as_str().unwrap();
            assert!(["", "/data"].contains(&pointer), "{id}: {problem}");
            let json = ["Content-Type: application/json"];
            let posted = raw::binary(&daemon.url, &id, &json, &data);
            assert_eq!(posted.problem(400, "OW2001")["pointer"], "/data", "{id}");
            // As number 5 of 10: all or nothing.
            let event = |n: usize| match n {
                4 => line(&id, &data),
                n => line(&format!("{id}-{n}"), b"1"),
            };
            let batch = (0..10).map(event).collect::<Vec<_>>().join(&b","[..]);
            let batch = [b"[", batch.as_slice(), b"]"].concat();
            let headers = ["Content-Type: application/cloudevents-batch+json"];
            let posted = raw::request(&daemon.url, "POST /v1/messages", &headers, &batch);
            posted.problem(400, "OW2001");
            lines.extend(line(&id, &data));
            rows.push((id, data));
        }
        lines.extend(line("good", b"1"));
        let ran = place.run_with_input(&["send", "--json"], &lines).ended(5).json();
        assert_eq!((&ran["refused"], &ran["accepted"]), (&refused().len().into(), &1.into()), "{ran}");
        for (n, refused) in ran["refused_lines"].as_array().unwrap().iter().enumerate() {
            assert_eq!(refused["line"], n + 1, "{refused}");
            assert!(refused["message"].as_str().is_some_and(|m| !m.is_empty()), "{refused}");
        }
        // A database has its own idea of JSON. What it takes is carried as it is.
        let taken = insert(&place, &rows).await;
        let mut expected: BTreeMap<_, _> = rows.into_iter().filter(|(id, _)| taken.contains(id)).collect();
        expected.insert("good".to_owned(), b"1".to_vec());
        assert!(expected.len() < 5, "{:?}", expected.keys());
        all_arrive(&mut receiver, expected).await;
        place.nothing_is_left();
        assert_eq!(daemon.stop(), 0);
    }

    async fn a_thousand_in_one_transaction_arrive_in_order(place) {
        let mut receiver = Receiver::start(|_| StatusCode::OK, false).await;
        place.configure(&push_to(&receiver.url()));
        let daemon = place.up(&["--migrate"]);
        let sizes = [7_900, 8_000, 8_100];
        let lines: String = (0..1_000)
            .map(|n| event(&format!("m{n:04}"), "order.accepted", &format!("o{}", n % 3), &text_of(sizes[n % 3])))
            .collect();
        // A batch is one transaction.
        let ran = place.run_with_input(&["send", "--batch", "1000", "--json"], &lines).ended(0);
        assert_eq!(ran.json()["accepted"], 1_000);
        let mut by_key: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for _ in 0..1_000 {
            let request = receiver.next().await;
            let id = request.header("webhook-id").to_owned();
            by_key.entry(request.header("ce-subject").to_owned()).or_default().push(id);
        }
        assert!(by_key.values().all(|ids| ids.is_sorted()), "{by_key:#?}");
        place.nothing_is_left();
        assert_eq!(daemon.stop(), 0);
    }

    async fn a_case_shows_the_data_as_they_were(place) {
        let receiver = Receiver::start(|_| StatusCode::BAD_REQUEST, false).await;
        place.configure_http(HTTP, &push_to(&receiver.url()));
        let daemon = place.up(&["--migrate"]);
        let shown = ["largest-i64", "long-decimal", "exponent", "minus-zero", "duplicate-keys", "lone-surrogate", "nul-in-key", "nested-512"];
        let all: BTreeMap<_, _> = carried().into_iter().filter(|(name, _)| shown.contains(name)).collect();
        let lines: String = all.iter().map(|(name, data)| event(name, "order.accepted", name, data)).collect();
        place.run_with_input(&["send"], lines).ended(0);
        let cases = place.until("there are all cases", || {
            let listed = place.run(&["quarantine", "list", "--json"]).ended(0).json();
            let cases = listed["cases"].as_array().unwrap().clone();
            (cases.len() == all.len()).then_some(cases)
        });
        for (n, case) in cases.iter().enumerate() {
            let name = case["message"]["id"].as_str().unwrap();
            let data = &all[name];
            let id = case["case_id"].to_string();
            let mut args = vec!["quarantine", "reveal", &id, "--why", "a test"];
            // Half of them as JSON.
            args.extend((n % 2 == 0).then_some("--json"));
            let ran = place.run(&args).ended(0);
            // As JSON, what is nested too deeply for a reader is a text.
            let is_there = ran.out.contains(data)
                || serde_json::from_str::<Value>(&ran.out)
                    .is_ok_and(|shown| shown["data_text"] == data.as_str());
            assert!(is_there, "{name}: {ran:#?}");
        }
        assert_eq!(daemon.stop(), 0);
    }
}
