//! What producers write, in any language, arrives byte for byte or is refused.

use std::process::Command;

use onceward_core::store::{Append, Schema, StoreErrorKind};
use onceward_core::{Envelope, Payload, Timestamp};

use crate::file::{TestFile, append, message, read_all};

#[tokio::test]
async fn odd_json_stays_as_it_was_written() {
    let file = TestFile::new().await;
    let payloads = [
        r#"{"a":1,"a":2}"#,
        "[1.0,1e0,1E+0,-0]",
        r#""\u0000 \ud83d\ude00 \/""#,
        "[9007199254740993,123456789012345678901234567890.10]",
        " {\r\n\t\"b\" : 1 , \"a\":2 }\n",
    ];
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    let payloads: Vec<&str> = payloads.into_iter().chain([deep.as_str()]).collect();
    let envelopes: Vec<Envelope> = payloads
        .iter()
        .enumerate()
        .map(|(i, payload)| Envelope {
            payload: Payload::Json((*payload).into()),
            ..message(&format!("m{i}"), "k")
        })
        .collect();
    append(&file.store, &envelopes).await;
    let rows = read_all(&file.store).await;
    assert_eq!(rows.len(), payloads.len());
    for (row, payload) in rows.iter().zip(&payloads) {
        assert!(
            row.envelope.payload == Payload::Json((*payload).into()),
            "{payload}"
        );
    }
}

#[tokio::test]
async fn what_is_no_json_is_refused_by_name() {
    let file = TestFile::new().await;
    let too_deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    for payload in ["{", "", "{'a':1}", "nul", too_deep.as_str()] {
        let envelope = Envelope {
            payload: Payload::Json(payload.into()),
            ..message("m", "k")
        };
        let mut connection = file.store.pool().acquire().await.unwrap();
        let refused = file
            .store
            .append(&mut connection, &[envelope])
            .await
            .unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Refused);
        let source = std::error::Error::source(&refused).unwrap().to_string();
        assert!(source.contains("payload_is_json"), "{source}");
        assert!(
            payload.is_empty() || !source.contains(payload),
            "the payload stays out: {source}"
        );
    }
    assert!(read_all(&file.store).await.is_empty());
}

/// The interpreter's own SQLite, older than ours.
fn python(path: &str, script: &str) -> Result<String, String> {
    let script = format!("import sqlite3, sys\nc = sqlite3.connect(sys.argv[1])\n{script}");
    let done = Command::new("python3").args(["-c", &script, path]).output();
    let done = done.expect("python3 is installed");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() {
        Ok(text(&done.stdout))
    } else {
        Err(text(&done.stderr))
    }
}

#[tokio::test]
async fn five_columns_inserted_by_python_are_read() {
    let file = TestFile::in_real_time().await;
    append(&file.store, &[message("ours", "k")]).await;
    let inserted = python(
        &file.path(),
        r#"
with c:
    c.execute("INSERT INTO onceward_outbox (id, aggregatetype, aggregateid, type, payload)"
              " VALUES (?, ?, ?, ?, ?)", ("py-1", "order", "ord-731", "order.accepted",
              '{"total": 1.0, "total": 1e0, "é": 9007199254740993}'))
    c.execute("INSERT INTO onceward_outbox (id, aggregatetype, aggregateid, type, payload_binary,"
              " occurred_at, headers) VALUES (?, ?, ?, ?, ?, ?, ?)", ("py-2", "order", "ord-732",
              "order.accepted", b"\x00\xff", "2026-10-25T01:30:00.123456+01:00",
              '{"traceparent": "00-a-b-01", "retries": 3}'))
"#,
    );
    inserted.unwrap();
    let rows = read_all(&file.store).await;
    assert_eq!(crate::file::ids(&rows), ["ours", "py-1", "py-2"]);
    let first = &rows[1];
    let text = "{\"total\": 1.0, \"total\": 1e0, \"é\": 9007199254740993}";
    assert!(first.envelope.payload == Payload::Json(text.into()));
    assert_eq!(
        first.envelope.source.as_deref(),
        Some("urn:onceward:orders")
    );
    assert_eq!(first.slot, onceward_core::lane::slot_of("ord-731"));
    assert_eq!(first.envelope.operation(), "py-1");
    let between_ms = first.recorded_at.millis_since(rows[0].recorded_at);
    assert!(
        (0..60_000).contains(&between_ms),
        "one clock: {between_ms} ms apart"
    );

    let second = &rows[2].envelope;
    assert!(second.payload == Payload::Binary(Box::new([0, 0xff])));
    let occurred_at: Timestamp = "2026-10-25T00:30:00.123456Z".parse().unwrap();
    assert_eq!(second.occurred_at, Some(occurred_at));
    assert_eq!(second.attributes["traceparent"], "00-a-b-01");
    assert_eq!(second.attributes["retries"], "3");
}

#[tokio::test]
async fn an_insert_that_could_not_be_read_back_is_refused() {
    let file = TestFile::new().await;
    append(&file.store, &[message("m1", "k"), message("m2", "k")]).await;
    for (columns, values, word) in [
        (
            "payload, payload_binary",
            "'1', x'00'",
            "exactly_one_payload",
        ),
        ("payload", "NULL", "exactly_one_payload"),
        ("payload", "'{'", "payload_is_json"),
        ("payload_binary", "'text'", "payload_binary_is_a_blob"),
        ("payload, headers", "'1', '[]'", "headers_are_a_json_object"),
        (
            "payload, occurred_at",
            "'1', 'yesterday'",
            "moments_are_micros_or_rfc3339",
        ),
        (
            "payload, schemaversion",
            "'1', 'two'",
            "numbers_are_integers",
        ),
        ("payload, operationid", "'1', x'00'", "texts_are_text"),
        ("payload, seq", "'1', 1", "seq"),
        ("payload, seq", "'1', 2", "seq"),
    ] {
        let refused = python(
            &file.path(),
            &format!(
                "c.execute(\"\"\"INSERT INTO onceward_outbox (id, aggregatetype, aggregateid, type, \
                 {columns}) VALUES ('x', 'order', 'o', 't', {values})\"\"\")\nc.commit()"
            ),
        );
        let said = refused.expect_err(columns);
        assert!(said.contains(word), "{columns}: {said}");
    }
    assert_eq!(read_all(&file.store).await.len(), 2);
}

/// A number is not given out again after its row was removed, or a position would be past a new
/// message.
#[tokio::test]
async fn numbers_are_never_used_again() {
    let file = TestFile::new().await;
    append(&file.store, &[message("m1", "k"), message("m2", "k")]).await;
    let removed = sqlx::query("DELETE FROM onceward_outbox")
        .execute(file.store.pool())
        .await;
    assert_eq!(removed.unwrap().rows_affected(), 2);
    append(&file.store, &[message("m3", "k")]).await;
    assert_eq!(read_all(&file.store).await[0].seq, 3);
}

/// Text of another language that is no UTF-8 neither stops the log nor is taken for something else.
#[tokio::test]
async fn bytes_that_are_no_utf8_do_not_stop_the_log() {
    let file = TestFile::new().await;
    for byte in ["fe", "ff"] {
        let sql = format!(
            "INSERT INTO onceward_outbox (id, aggregatetype, aggregateid, type, payload)
             VALUES (CAST(x'61{byte}' AS TEXT), 'order', 'o', 't', CAST(x'22{byte}22' AS TEXT))"
        );
        sqlx::query(sqlx::AssertSqlSafe(sql))
            .execute(file.store.pool())
            .await
            .unwrap();
    }
    append(&file.store, &[message("after", "k")]).await;
    let rows = read_all(&file.store).await;
    assert_eq!(
        crate::file::ids(&rows),
        ["not-utf8:61fe", "not-utf8:61ff", "after"]
    );
    assert!(rows[1].envelope.payload == Payload::Binary(Box::new([0x22, 0xff, 0x22])));
}

/// A receiver in another language records its effects itself.
#[tokio::test]
async fn the_ledgers_are_open_to_other_languages() {
    let file = TestFile::new().await;
    let script = r#"
sql = ("INSERT INTO onceward_ledger (subscription, source, type, identity, recordedtime, result)"
       " VALUES ('mail', '/shop', 'order.accepted', 'm1', '2026-10-25T00:30:00.25Z', '{}')"
       " ON CONFLICT DO NOTHING")
operation = ("INSERT INTO onceward_operation_ledger (subscription, source, type, identity, result)"
       " VALUES ('mail', '/shop', 'order.accepted', 'op1', '{}') ON CONFLICT DO NOTHING")
with c:
    print(c.execute(sql).rowcount, c.execute(sql).rowcount,
          c.execute(operation).rowcount, c.execute(operation).rowcount)
"#;
    assert_eq!(python(&file.path(), script).unwrap().trim(), "1 0 1 0");
    let recorded: i64 = sqlx::query_scalar("SELECT recordedtime FROM onceward_ledger")
        .fetch_one(file.store.pool())
        .await
        .unwrap();
    let expected: Timestamp = "2026-10-25T00:30:00.25Z".parse().unwrap();
    assert_eq!(recorded, expected.as_micros());
}

/// Whoever opens the file, and under whatever name: the source is the file's own.
#[tokio::test]
async fn the_source_is_kept_in_the_file() {
    let file = TestFile::new().await;
    append(&file.store, &[message("m1", "k")]).await;
    let source =
        async |store: &onceward_sqlite::Sqlite| read_all(store).await.remove(0).envelope.source;
    assert_eq!(
        source(&file.store).await.as_deref(),
        Some("urn:onceward:orders")
    );
    let named = file.second().await.with_source("/shop");
    assert_eq!(
        source(&named).await.as_deref(),
        Some("urn:onceward:orders"),
        "not migrated yet"
    );
    named.migrate().await.unwrap();
    file.second().await.migrate().await.unwrap();
    assert_eq!(
        source(&file.store).await.as_deref(),
        Some("/shop"),
        "set by hand, and stays"
    );
}
