//! A client that sends exactly what it is told, so that hostile requests can be sent too.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A request; `Host` is added unless it is given, and a length where there is a body.
pub(crate) struct Request {
    line: String,
    headers: Vec<String>,
    body: Vec<u8>,
}

pub(crate) fn get(path: &str) -> Request {
    Request {
        line: format!("GET {path} HTTP/1.1"),
        headers: Vec::new(),
        body: Vec::new(),
    }
}

pub(crate) fn post(path: &str, body: impl AsRef<[u8]>) -> Request {
    Request {
        line: format!("POST {path} HTTP/1.1"),
        headers: Vec::new(),
        body: body.as_ref().to_vec(),
    }
}

/// One event as JSON to `/v1/messages`.
pub(crate) fn structured(body: impl AsRef<[u8]>) -> Request {
    post("/v1/messages", body).header("content-type: application/cloudevents+json")
}

/// Several events as JSON to `/v1/messages`.
pub(crate) fn batch(body: impl AsRef<[u8]>) -> Request {
    post("/v1/messages", body).header("content-type: application/cloudevents-batch+json")
}

impl Request {
    pub(crate) fn header(mut self, line: impl Into<String>) -> Self {
        self.headers.push(line.into());
        self
    }

    fn has(&self, name: &str) -> bool {
        let prefix = format!("{name}:");
        self.headers
            .iter()
            .any(|line| line.to_ascii_lowercase().starts_with(&prefix))
    }

    pub(crate) async fn send(mut self, address: SocketAddr) -> Response {
        if !self.has("host") {
            self.headers.push(format!("Host: {address}"));
        }
        if !self.has("content-length") && !self.has("transfer-encoding") && !self.body.is_empty() {
            self.headers
                .push(format!("Content-Length: {}", self.body.len()));
        }
        self.headers.push("Connection: close".to_owned());
        let head = format!("{}\r\n{}\r\n\r\n", self.line, self.headers.join("\r\n"));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        // A server that refuses early may close before it has read everything.
        let _ = stream.write_all(&self.body).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        Response::parse(&String::from_utf8(answer).unwrap())
    }
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Response {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").expect("an answer has a head");
        let mut lines = head.lines();
        let status = lines
            .next()
            .unwrap()
            .split(' ')
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        let headers = lines.filter_map(|line| line.split_once(": "));
        Self {
            status,
            headers: headers
                .map(|(n, v)| (n.to_ascii_lowercase(), v.to_owned()))
                .collect(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(n, _)| n == name);
        found.next().map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.body))
    }

    /// Asserts that this is a problem with a status and a code, and returns it.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        let problem = self.json();
        assert_eq!(
            (self.status, problem["code"].as_str()),
            (status, Some(code)),
            "{problem}"
        );
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json")
        );
        assert_eq!(problem["status"], status);
        assert_eq!(
            problem["type"],
            format!("https://onceward.dev/errors/{code}")
        );
        problem
    }
}
