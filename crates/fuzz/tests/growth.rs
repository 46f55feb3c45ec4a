//! Eight times the input takes about eight times as long, not sixty-four times. Time is the
//! thread's own on a processor, so that a busy machine changes nothing.

use std::path::Path;
use std::time::Duration;

use onceward_cli::config::Config;
use onceward_fuzz::target;
use rustix::time::{ClockId, clock_gettime};

/// Units in the shorter input.
const UNITS: usize = 500;

/// How much longer the longer one is.
const TIMES: usize = 8;

/// How much longer it may take; the square would be 64.
const GROWTH_MAX: u32 = 28;

/// What measuring itself may be wrong by.
const NOISE: Duration = Duration::from_millis(4);

fn used() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// The least of three measurements.
fn cost(read: &dyn Fn(&[u8]), input: &[u8]) -> Duration {
    let measure = |_| {
        let since = used();
        read(input);
        used().saturating_sub(since)
    };
    (0..3).map(measure).min().expect("three are measured")
}

fn grows_evenly(what: &str, read: &dyn Fn(&[u8]), input: &dyn Fn(usize) -> String) {
    let short = cost(read, input(UNITS).as_bytes());
    let long = cost(read, input(UNITS * TIMES).as_bytes());
    assert!(
        long <= short * GROWTH_MAX + NOISE,
        "{what}: {short:?} for {UNITS} units, {long:?} for {TIMES} times as many"
    );
}

fn numbered(count: usize, unit: impl Fn(usize) -> String) -> String {
    (0..count).map(unit).collect()
}

#[test]
#[should_panic(expected = "times as many")]
fn growth_by_the_square_is_noticed() {
    let read = |data: &[u8]| {
        let later = |at: usize| data[at..].iter().filter(|byte| **byte == 0).count();
        assert_eq!((0..data.len()).map(later).sum::<usize>(), 0);
    };
    grows_evenly("the square", &read, &|n| "x".repeat(n * 2));
}

const EVENT: &str = r#""specversion":"1.0","id":"m","source":"//s","type":"t""#;
const HEAD: &str = "ce-specversion: 1.0\nce-id: m\nce-source: //s\nce-type: t\n";

#[test]
fn events_are_read_in_even_time() {
    let by = |name: &str| target(name).expect("a target has this name");
    let structured = by("cloudevents_structured");
    grows_evenly("attributes", &structured, &|n| {
        format!(
            "{{{EVENT}{}}}",
            numbered(n, |i| format!(",\"a{i}\":\"{i}\""))
        )
    });
    grows_evenly("one attribute twice at the end", &structured, &|n| {
        format!(
            "{{{EVENT}{},\"a0\":1}}",
            numbered(n, |i| format!(",\"a{i}\":1"))
        )
    });
    grows_evenly("nesting", &structured, &|n| {
        format!(
            "{{{EVENT},\"data\":{}{}}}",
            "[".repeat(n * 8),
            "]".repeat(n * 8)
        )
    });
    grows_evenly("base64", &structured, &|n| {
        format!("{{{EVENT},\"data_base64\":\"{}\"}}", "AAAA".repeat(n))
    });
    grows_evenly("escapes", &structured, &|n| {
        format!("{{{EVENT},\"x\":\"{}\"}}", r"\u00e9\\".repeat(n))
    });
    grows_evenly("headers", &by("cloudevents_binary"), &|n| {
        format!("{HEAD}{}\n", numbered(n, |i| format!("ce-a{i}: %41{i}\n")))
    });
    grows_evenly("events", &by("cloudevents_batch"), &|n| {
        format!("[{}{{{EVENT}}}]", numbered(n, |_| format!("{{{EVENT}}},")))
    });
    grows_evenly("lines", &by("send_lines"), &|n| {
        numbered(n, |_| format!("{{{EVENT}}}\n\n"))
    });
}

#[test]
fn short_texts_are_read_in_even_time() {
    let by = |name: &str| target(name).expect("a target has this name");
    grows_evenly("open transactions", &by("position"), &|n| {
        format!("0:99999999:{}1", numbered(n, |i| format!("{},", i + 2)))
    });
    grows_evenly("digits", &by("retry_after"), &|n| "9".repeat(n * 8));
    grows_evenly("a fraction", &by("timestamp"), &|n| {
        format!("2026-03-01T12:00:00.{}Z", "0".repeat(n * 8))
    });
    grows_evenly("a query", &by("store_url"), &|n| {
        format!("postgres://h/d?{}", numbered(n, |i| format!("a{i}=%41&")))
    });
    grows_evenly("secrets", &by("signature"), &|n| {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw ";
        format!("{}\nid\nbody", secret.repeat(n))
    });
}

#[test]
fn files_are_read_in_even_time() {
    let read = |data: &[u8]| {
        let text = str::from_utf8(data).expect("made of text");
        let parsed = Config::parse(Path::new("/nonexistent/shop/onceward.toml"), text);
        assert!(parsed.is_err());
    };
    grows_evenly("unknown settings", &read, &|n| {
        numbered(n, |i| format!("k{i} = 1\n"))
    });
    grows_evenly("unknown settings on a line", &read, &|n| {
        format!(
            "http = {{ {}a = 1 }}\n",
            numbered(n, |i| format!("k{i} = 1, "))
        )
    });
    grows_evenly("types that are not there", &read, &|n| {
        let types = numbered(n, |i| format!("\"t{i}\", "));
        format!("[subscription.s]\nmessages = [{types}]\n")
    });
    grows_evenly("commands and their owners", &read, &|n| {
        let owned = numbered(n, |i| {
            format!(
                "[message.c{i}]\nkind = \"command\"\n[subscription.s{i}]\nmessages = [\"c{i}\"]\n"
            )
        });
        format!("{owned}[message.nobodys]\nkind = \"command\"\n")
    });
    grows_evenly("one long name", &read, &|n| {
        let name = "x".repeat(n * 8);
        format!("[message.{name}]\n[subscription.s]\nmessages = [\"y{name}\"]\n{name} = 1\n")
    });
    grows_evenly("broken lines", &read, &|n| "= [\n".repeat(n));
}
