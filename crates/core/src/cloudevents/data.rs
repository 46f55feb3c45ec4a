//! What the content type says about the data, and whether the data keep to it.

use serde::de::IgnoredAny;

use super::fault::{EventFault, FaultKind, Layout};
use crate::envelope::Payload;

/// Deepest nesting of JSON data that is accepted. Databases and receivers stop soon above it.
pub const NESTING_MAX: usize = 512;

/// The default content type: implied by JSON data.
pub(super) const JSON: &str = "application/json";

/// A media type without its parameters, in lower case.
pub(super) fn essence(content_type: &str) -> String {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

/// Whether a media type declares JSON.
pub(super) fn is_json(content_type: &str) -> bool {
    let essence = essence(content_type);
    let subtype = essence.split_once('/').map_or("", |(_, subtype)| subtype);
    subtype == "json" || subtype.ends_with("+json")
}

/// Whether a text has the shape `type/subtype`, with or without parameters, in printable ASCII.
pub(super) fn is_media_type(text: &str) -> bool {
    let essence = essence(text);
    let is_token = |part: &str| {
        let is_good = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        !part.is_empty() && part.bytes().all(is_good)
    };
    let is_named = essence
        .split_once('/')
        .is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype));
    is_named && text.trim() == text && text.bytes().all(|b| matches!(b, 0x20..=0x7e))
}

/// The payload for data that came as bytes. Empty bytes are no data, whatever their type.
pub(super) fn payload_of(
    layout: Layout,
    name: &str,
    content_type: Option<&str>,
    bytes: Vec<u8>,
) -> Result<Payload, EventFault> {
    let is_declared = content_type.is_some_and(is_json);
    let is_undeclared = matches!(layout, Layout::Binary | Layout::Properties)
        && content_type.is_none()
        && is_json_document(&bytes);
    if bytes.is_empty() || !(is_declared || is_undeclared) {
        return Ok(Payload::Binary(bytes.into()));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let message = format!("the content type says JSON, but byte {valid} is not UTF-8");
        layout.fault(FaultKind::Encoding, name, message)
    })?;
    if let Err(error) = serde_json::from_str::<IgnoredAny>(&text) {
        let message = format!("the content type says JSON, but {}", describe(&error));
        return Err(layout.fault(FaultKind::Data, name, message));
    }
    check_nesting(layout, name, &text)?;
    Ok(Payload::Json(text.into()))
}

/// Whether bytes without a content type are a JSON object or array. Common senders leave the type
/// out in binary mode.
fn is_json_document(bytes: &[u8]) -> bool {
    matches!(bytes.trim_ascii_start().first(), Some(b'{' | b'['))
        && serde_json::from_slice::<IgnoredAny>(bytes).is_ok()
        && str::from_utf8(bytes).is_ok()
}

/// What is wrong with a JSON text, without quoting it.
pub(super) fn describe(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let what = match error.classify() {
        serde_json::error::Category::Eof => "it ends too early",
        _ => "it is not well-formed",
    };
    format!("{what} (line {line}, column {column})")
}

/// Refuses deeply nested JSON. The text must be well-formed.
pub(super) fn check_nesting(layout: Layout, name: &str, text: &str) -> Result<(), EventFault> {
    let (mut depth, mut deepest) = (0_usize, 0_usize);
    let (mut in_string, mut is_escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    if deepest > NESTING_MAX {
        let message = format!("nested {deepest} levels deep; at most {NESTING_MAX} are accepted");
        return Err(layout.fault(FaultKind::TooDeep, name, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_known_by_its_subtype() {
        for json in [
            "application/json",
            "Text/JSON; charset=utf-8",
            "application/vnd.x+json",
        ] {
            assert!(is_json(json), "{json}");
        }
        for other in [
            "application/jsonl",
            "json",
            "text/plain",
            "application/xml;x=+json",
        ] {
            assert!(!is_json(other), "{other}");
        }
    }

    #[test]
    fn brackets_in_strings_do_not_nest() {
        let text = format!(r#"["{}", "\"{}"]"#, "[".repeat(600), "{".repeat(600));
        assert!(check_nesting(Layout::Structured, "data", &text).is_ok());
        let deep = format!("{}{}", "[".repeat(513), "]".repeat(513));
        let fault = check_nesting(Layout::Structured, "data", &deep).unwrap_err();
        assert_eq!(fault.kind, FaultKind::TooDeep);
        assert!(check_nesting(Layout::Structured, "data", &deep[1..1025]).is_ok());
    }

    #[test]
    fn media_types_have_two_tokens() {
        assert!(is_media_type("text/plain; charset=\"utf 8\""));
        for bad in [
            "",
            "text",
            "/plain",
            "a/b/c",
            " a/b",
            "a/b\r\nx: y",
            "a b/c",
            "a/é",
        ] {
            assert!(!is_media_type(bad), "{bad:?}");
        }
    }
}
