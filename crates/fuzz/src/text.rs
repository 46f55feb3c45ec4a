//! Short texts: times, `Retry-After`, signatures.

use std::time::{Duration, SystemTime};

use onceward::push::retry_after::parse_ms;
use onceward::push::signature::webhook_id;
use onceward::push::{SecretError, SigningSecrets};
use onceward_core::Timestamp;
use onceward_core::disposition::RETRY_AFTER_MAX_MS;

/// A time's text, and its microseconds.
pub(crate) fn timestamp(data: &[u8]) {
    if let Some(micros) = data.first_chunk() {
        let stamp = Timestamp::from_micros(i64::from_le_bytes(*micros));
        let shown = stamp.to_string();
        let is_number = shown.strip_suffix("us") == Some(stamp.as_micros().to_string().as_str());
        assert!(is_number || shown.parse() == Ok(stamp), "{shown}");
    }
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    let Ok(stamp) = text.parse::<Timestamp>() else {
        return;
    };
    assert_eq!(
        stamp.to_string().parse(),
        Ok(stamp),
        "{stamp} does not read back"
    );
    let later = stamp.plus_millis(i64::MAX);
    assert!(later >= stamp && later.millis_since(stamp) >= 0);
    let text = serde_json::to_string(&stamp).expect("a time can be written");
    assert_eq!(serde_json::from_str::<Timestamp>(&text).ok(), Some(stamp));
}

/// A header's value, at three moments.
pub(crate) fn retry_after(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    // The beginning, 6 November 1994, the end of the year 9999.
    let waits = [0, 784_111_777, 253_402_300_799].map(|seconds| parse_ms(text, at(seconds)));
    let digits = text.trim();
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        let seconds = digits.parse().unwrap_or(u64::MAX);
        let expected = seconds.saturating_mul(1_000).min(RETRY_AFTER_MAX_MS);
        assert_eq!(waits, [Some(expected); 3]);
        return;
    }
    // The later it is, the shorter is the wait for a moment.
    match waits {
        [None, None, None] => {}
        [Some(first), Some(second), Some(third)] => {
            assert!(first <= RETRY_AFTER_MAX_MS && second <= first && third <= second);
        }
        _ => panic!("{text:?} is a wait at one moment and none at another"),
    }
}

/// Secrets, an id on the next line, and a body.
pub(crate) fn signature(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == b'\n');
    let mut next = || parts.next().unwrap_or_default();
    let (secrets, id, body) = (next(), next(), next());
    let secrets = String::from_utf8_lossy(secrets);
    let id = String::from_utf8_lossy(id);
    let words = secrets.split_whitespace().count();
    let sent = webhook_id(&id);
    let is_printable = sent.bytes().all(|b| b.is_ascii_graphic() && b != b'.');
    assert!(is_printable, "{sent:?} cannot be sent");
    assert_eq!(undone(&sent), id.as_bytes(), "two ids may become one");
    let secrets = match SigningSecrets::parse(&secrets) {
        Ok(secrets) => secrets,
        Err(SecretError::Missing) => return assert_eq!(words, 0),
        Err(SecretError::Malformed { number }) => return assert!((1..=words).contains(&number)),
        Err(other) => panic!("{other}"),
    };
    let signed = secrets.sign(&sent, 1_614_265_330, body);
    let signatures: Vec<&str> = signed.split(' ').collect();
    assert_eq!(signatures.len(), words);
    for signature in signatures {
        let digits = signature.strip_prefix("v1,").expect("a version");
        let is_digit = |b: u8| b.is_ascii_alphanumeric() || b"+/=".contains(&b);
        assert!(
            digits.len() == 44 && digits.bytes().all(is_digit),
            "{signature}"
        );
    }
    let other = [body, b"."].concat();
    assert_ne!(secrets.sign(&sent, 1_614_265_330, &other), signed);
    assert_ne!(secrets.sign(&sent, 1_614_265_331, body), signed);
}

/// Percent-encoding undone.
fn undone(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut plain = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            plain.push(byte);
            continue;
        }
        let mut digit = || {
            let digit = bytes.next().and_then(|b| char::from(b).to_digit(16));
            digit.expect("a digit follows") as u8
        };
        let high = digit();
        plain.push(high << 4 | digit());
    }
    plain
}
