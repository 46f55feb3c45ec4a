//! HTTP exactly as it is told, so that hostile requests can be sent too.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use crate::place::SOON;

/// An answer.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answered {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:#?}"))
    }

    /// Asserts that it is a problem with a status and a code, and returns it.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        let problem = self.json();
        let found = (self.status, problem["code"].as_str());
        assert_eq!(found, (status, Some(code)), "{self:#?}");
        problem
    }
}

/// Sends a request to the daemon at `url`. Blocks: no async task waits for it.
pub(crate) fn request(url: &str, line: &str, headers: &[&str], body: &[u8]) -> Answered {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let has_host = headers
        .iter()
        .any(|header| header.to_ascii_lowercase().starts_with("host:"));
    let mut head = format!("{line} HTTP/1.1\r\nConnection: close\r\n");
    if !has_host {
        head.push_str(&format!("Host: {address}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    // A server that refuses early may close before it has read everything.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer to {line}: {answer:?}"));
    let status = head.split(' ').nth(1).unwrap();
    Answered {
        status: status.parse().unwrap(),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// One event as a document.
pub(crate) fn structured(url: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Answered {
    let mut all = vec!["Content-Type: application/cloudevents+json"];
    all.extend(headers);
    request(url, "POST /v1/messages", &all, body.as_ref())
}

/// One event in headers, with its data as the body.
pub(crate) fn binary(url: &str, id: &str, headers: &[&str], body: &[u8]) -> Answered {
    let id = format!("ce-id: {id}");
    let mut all = vec![
        "ce-specversion: 1.0",
        "ce-source: /test",
        "ce-type: order.accepted",
        &id,
    ];
    all.extend(headers);
    request(url, "POST /v1/messages", &all, body)
}
