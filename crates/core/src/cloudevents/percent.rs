//! Attribute values in headers: percent-encoded UTF-8, one round, as the HTTP binding asks.

use std::borrow::Cow;

/// Why a header value cannot be read.
pub(super) const BAD_ESCAPE: &str = "% must be followed by two hexadecimal digits";
pub(super) const BAD_BYTE: &str =
    "has a byte outside printable ASCII: write it percent-encoded, as UTF-8";
pub(super) const BAD_UTF8: &str = "is not UTF-8 after percent-decoding";
const BAD_QUOTES: &str = "starts a quoted string that does not end with the value";

/// Encodes everything but U+0021–U+007E, and the double quote and percent sign.
pub(crate) fn encode(value: &str) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        if matches!(byte, 0x21..=0x7e) && byte != b'"' && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.push(char::from(DIGITS[usize::from(byte >> 4)]));
            encoded.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
    encoded
}

/// Undoes quoting (which older senders use), then one round of percent-encoding.
pub(super) fn decode(value: &[u8]) -> Result<String, &'static str> {
    // Blanks around a header's value do not belong to it.
    let value = value.trim_ascii();
    if !value.iter().all(|b| matches!(b, 0x20..=0x7e | b'\t')) {
        return Err(BAD_BYTE);
    }
    let value = unquote(value)?;
    let mut decoded = Vec::with_capacity(value.len());
    let mut rest = value.as_ref();
    while let Some((&byte, tail)) = rest.split_first() {
        if byte != b'%' {
            decoded.push(byte);
            rest = tail;
            continue;
        }
        let (Some(high), Some(low)) = (hex(tail.first()), hex(tail.get(1))) else {
            return Err(BAD_ESCAPE);
        };
        decoded.push(high << 4 | low);
        rest = &tail[2..];
    }
    String::from_utf8(decoded).map_err(|_| BAD_UTF8)
}

fn hex(digit: Option<&u8>) -> Option<u8> {
    let digit = char::from(*digit?).to_digit(16)?;
    u8::try_from(digit).ok()
}

fn unquote(value: &[u8]) -> Result<Cow<'_, [u8]>, &'static str> {
    if value.first() != Some(&b'"') {
        return Ok(Cow::Borrowed(value));
    }
    let mut plain = Vec::with_capacity(value.len());
    let mut bytes = value[1..].iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' if bytes.as_slice().is_empty() => return Ok(Cow::Owned(plain)),
            b'"' => return Err(BAD_QUOTES),
            b'\\' => plain.push(*bytes.next().ok_or(BAD_QUOTES)?),
            other => plain.push(*other),
        }
    }
    Err(BAD_QUOTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bindings_own_example() {
        assert_eq!(encode("Euro € 😀"), "Euro%20%E2%82%AC%20%F0%9F%98%80");
        assert_eq!(
            decode(b"Euro%20%E2%82%AC%20%F0%9F%98%80").as_deref(),
            Ok("Euro € 😀")
        );
    }

    #[test]
    fn decoding_is_one_round_and_unquotes() {
        assert_eq!(decode(b"%2541").as_deref(), Ok("%41"));
        assert_eq!(decode(b"  a b ").as_deref(), Ok("a b"));
        assert_eq!(decode(br#""a \"b\" %41""#).as_deref(), Ok("a \"b\" A"));
        assert_eq!(decode(b"%41%4a%4A").as_deref(), Ok("AJJ"));
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        assert_eq!(decode(b"50% off"), Err(BAD_ESCAPE));
        assert_eq!(decode(b"%4"), Err(BAD_ESCAPE));
        assert_eq!(decode(b"%+1"), Err(BAD_ESCAPE));
        assert_eq!(decode(b"%C3%28"), Err(BAD_UTF8));
        assert_eq!(decode("é".as_bytes()), Err(BAD_BYTE));
        assert_eq!(decode(b"a\0b"), Err(BAD_BYTE));
        assert_eq!(decode(br#""a"b"#), Err(BAD_QUOTES));
        assert_eq!(decode(br#""a\"#), Err(BAD_QUOTES));
    }
}
