//! From an HTTP answer to what becomes of the message.

use onceward_core::{Class, Failure};
use serde::de::IgnoredAny;

use super::Happened;

/// What an answer to a push means. `body` is the answer's, where it was short and arrived.
pub(super) fn outcome(
    status: u16,
    retry_after_ms: Option<u64>,
    can_probe: bool,
    body: Option<&[u8]>,
) -> Result<(), Failure> {
    let class = match status {
        200..=299 | 409 => return Ok(()),
        422 => Class::Rejected,
        400 | 413 | 415 | 431 => Class::Permanent,
        429 => Class::RateLimited,
        503 if retry_after_ms.is_some() => Class::RateLimited,
        408 | 425 => Class::Transient,
        500..=599 if can_probe => Class::Ambiguous,
        500..=599 => Class::Transient,
        // Redirects, missing rights, a wrong address, and whatever nobody agreed on: sending the
        // same again changes nothing, and quarantining every message would only hide it.
        _ => Class::Operator,
    };
    let text = format!("the receiver answered with status {status}");
    let mut failure = Failure::new(class, format!("http_{status}"), text);
    if let Some(ms) = retry_after_ms.filter(|_| waits(class)) {
        failure = failure.with_retry_after_ms(ms);
    }
    if class == Class::Rejected {
        failure = failure.with_outcome(rejection(status, body));
    }
    Err(failure)
}

/// What an answer to a probe means.
pub(super) fn happened(
    status: u16,
    retry_after_ms: Option<u64>,
    body: Option<&[u8]>,
) -> Result<bool, Failure> {
    if status == 200
        && let Some(Happened { happened }) = body.and_then(|b| serde_json::from_slice(b).ok())
    {
        return Ok(happened);
    }
    let class = match status {
        408 | 425 | 500..=599 => Class::Transient,
        429 => Class::RateLimited,
        _ => Class::Operator,
    };
    let text = format!("the probe answered with status {status} and no clear word");
    let failure = Failure::new(class, format!("probe_http_{status}"), text);
    Err(match retry_after_ms.filter(|_| waits(class)) {
        Some(ms) => failure.with_retry_after_ms(ms),
        None => failure,
    })
}

const fn waits(class: Class) -> bool {
    matches!(
        class,
        Class::RateLimited | Class::Transient | Class::Ambiguous
    )
}

/// The receiver's reason as JSON text.
fn rejection(status: u16, body: Option<&[u8]>) -> String {
    let text = body.and_then(|body| str::from_utf8(body).ok());
    match text.filter(|text| serde_json::from_str::<IgnoredAny>(text).is_ok()) {
        Some(json) => json.to_owned(),
        None => format!("{{\"status\":{status}}}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_answers() {
        let class = |status, can_probe| {
            outcome(status, None, can_probe, None)
                .err()
                .map(|f| f.class())
        };
        for can_probe in [false, true] {
            for status in [200, 201, 202, 204, 299, 409] {
                assert_eq!(class(status, can_probe), None, "{status}");
            }
            let rows = [
                (Class::Rejected, [422].as_slice()),
                (Class::Permanent, &[400, 413, 415]),
                (Class::RateLimited, &[429]),
                (Class::Transient, &[408, 425]),
                (
                    Class::Operator,
                    &[
                        100, 301, 302, 303, 304, 307, 308, 401, 402, 403, 404, 405, 410, 418, 451,
                        600,
                    ],
                ),
            ];
            for (expected, statuses) in rows {
                for status in statuses {
                    assert_eq!(class(*status, can_probe), Some(expected), "{status}");
                }
            }
        }
        for status in [500, 501, 502, 503, 504, 599] {
            assert_eq!(class(status, false), Some(Class::Transient), "{status}");
            assert_eq!(class(status, true), Some(Class::Ambiguous), "{status}");
        }
    }

    #[test]
    fn a_wait_that_was_asked_for_is_kept() {
        let failure = outcome(503, Some(5_000), true, None).unwrap_err();
        assert_eq!(
            (failure.class(), failure.retry_after_ms()),
            (Class::RateLimited, Some(5_000))
        );
        let failure = outcome(502, Some(5_000), false, None).unwrap_err();
        assert_eq!(
            (failure.class(), failure.retry_after_ms()),
            (Class::Transient, Some(5_000))
        );
        assert_eq!(
            outcome(429, None, false, None)
                .unwrap_err()
                .retry_after_ms(),
            None
        );
        assert_eq!(
            outcome(301, Some(5_000), false, None)
                .unwrap_err()
                .retry_after_ms(),
            None
        );
    }

    #[test]
    fn a_rejection_keeps_the_receivers_reason() {
        let of = |body| outcome(422, None, false, body).unwrap_err();
        let json = of(Some(br#"{"reason":"unsupported address"}"#));
        assert_eq!(json.outcome(), Some(r#"{"reason":"unsupported address"}"#));
        assert!(!json.message().contains("address"));
        assert_eq!(of(Some(b"<html>")).outcome(), Some(r#"{"status":422}"#));
        assert_eq!(of(None).outcome(), Some(r#"{"status":422}"#));
    }

    #[test]
    fn a_probe_has_to_say_it() {
        let of = |status, body: &'static str| happened(status, None, Some(body.as_bytes()));
        assert!(of(200, r#"{"happened":true,"at":1}"#).unwrap());
        assert!(!of(200, r#"{"happened":false}"#).unwrap());
        for (status, body, class) in [
            (200, "", Class::Operator),
            (204, r#"{"happened":false}"#, Class::Operator),
            (404, r#"{"happened":false}"#, Class::Operator),
            (302, "", Class::Operator),
            (500, "", Class::Transient),
            (429, "", Class::RateLimited),
        ] {
            assert_eq!(of(status, body).unwrap_err().class(), class, "{status}");
        }
    }
}
