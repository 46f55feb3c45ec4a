//! The header `Idempotency-Key` as in the IETF draft: a quoted string, or bare.

use axum::http::{HeaderMap, HeaderName};

use crate::code::Code;
use crate::problem::Problem;

/// The header's name.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Longest key, in bytes.
const KEY_BYTES_MAX: usize = 255;

/// The key of a request, if it has one.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let unreadable = |detail: &str| Problem::new(Code::KeyUnreadable, detail);
    let mut given = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = given.next() else {
        return Ok(None);
    };
    if given.next().is_some() {
        return Err(unreadable("the header is there more than once"));
    }
    let text = value.to_str().unwrap_or_default().trim();
    let key = if text.starts_with('"') {
        quoted(text)
    } else {
        let is_bare = |b: u8| b.is_ascii_graphic() && !b"\",;\\".contains(&b);
        text.bytes().all(is_bare).then(|| text.to_owned())
    };
    match key {
        Some(key) if (1..=KEY_BYTES_MAX).contains(&key.len()) => Ok(Some(key)),
        _ => Err(unreadable(
            "give a string in double quotes, or bare without blanks, of 1 to 255 ASCII characters",
        )),
    }
}

/// A structured-field string.
fn quoted(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut key = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => key.push(chars.next().filter(|c| matches!(c, '"' | '\\'))?),
            '"' => return None,
            ' '..='~' => key.push(c),
            _ => return None,
        }
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn read(values: &[&str]) -> Result<Option<String>, Code> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(IDEMPOTENCY_KEY, HeaderValue::from_str(value).unwrap());
        }
        key(&headers).map_err(|problem| problem.code())
    }

    #[test]
    fn quoted_and_bare_are_the_same_key() {
        assert_eq!(read(&[]), Ok(None));
        for value in ["\"8e03-97\"", "8e03-97", " 8e03-97 "] {
            assert_eq!(read(&[value]), Ok(Some("8e03-97".into())));
        }
        assert_eq!(read(&[r#""a \"b\" \\""#]), Ok(Some(r#"a "b" \"#.into())));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let long = "x".repeat(256);
        for value in [
            "", "\"", "\"\"", "\"a", "a\"b", "a b", "\"a\"b\"", r#""a\b""#, "a;b=1", &long,
        ] {
            assert_eq!(read(&[value]), Err(Code::KeyUnreadable), "{value}");
        }
        assert_eq!(read(&["a", "a"]), Err(Code::KeyUnreadable));
    }
}
