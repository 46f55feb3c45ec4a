//! The header `Retry-After`: seconds, or an HTTP date. Hidden: public for fuzzing only.

use std::time::SystemTime;

use onceward_core::disposition::RETRY_AFTER_MAX_MS;

/// The wait in milliseconds from `now`, at most [`RETRY_AFTER_MAX_MS`]; `None` when it is neither
/// of the two forms. A date that is past is no wait.
pub fn parse_ms(value: &str, now: SystemTime) -> Option<u64> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // Too many digits for a number are a wait all the same.
        let seconds: u64 = value.parse().unwrap_or(u64::MAX);
        return Some(seconds.saturating_mul(1_000).min(RETRY_AFTER_MAX_MS));
    }
    let at = httpdate::parse_http_date(value).ok()?;
    let wait = at.duration_since(now).unwrap_or_default();
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    Some(wait_ms.min(RETRY_AFTER_MAX_MS))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn seconds_and_dates_are_read_and_capped() {
        // Sun, 06 Nov 1994 08:49:37 GMT.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let ms = |value| parse_ms(value, now);
        assert_eq!(ms("120"), Some(120_000));
        assert_eq!(ms(" 0 "), Some(0));
        assert_eq!(ms("99999999999999999999999"), Some(RETRY_AFTER_MAX_MS));
        assert_eq!(ms("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60_000));
        assert_eq!(ms("Sunday, 06-Nov-94 08:50:37 GMT"), Some(60_000));
        assert_eq!(ms("Sun, 06 Nov 1994 08:49:00 GMT"), Some(0));
        assert_eq!(
            ms("Tue, 01 Jan 2030 00:00:00 GMT"),
            Some(RETRY_AFTER_MAX_MS)
        );
        for bad in ["", "-1", "1.5", "soon", "2026-01-01T00:00:00Z"] {
            assert_eq!(ms(bad), None, "{bad}");
        }
    }
}
