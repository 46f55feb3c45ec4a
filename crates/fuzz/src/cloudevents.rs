//! Events on the wire: read as they are, or refused with a place; what is read can be written, and
//! what is written reads back the same.

use std::collections::BTreeMap;

use onceward_core::cloudevents::{
    FaultKind, Place, from_batch, from_binary, from_structured, to_batch, to_binary, to_structured,
};
use onceward_core::{Envelope, Payload, Timestamp};
use serde_json::value::RawValue;

use crate::{place, request};

/// `from_binary` over headers and a body.
pub(crate) fn binary(data: &[u8]) {
    let (head, body) = request::head_and_body(data);
    let headers: Vec<(String, &[u8])> = head.into_iter().map(request::header).collect();
    let given = headers.iter().map(|(name, value)| (name.as_str(), *value));
    match from_binary(given, body) {
        Ok(envelope) => {
            assert_eq!(envelope.payload.as_bytes(), body, "the body is altered");
            travels(&envelope);
        }
        Err(fault) => place::in_headers(&fault, &headers),
    }
}

/// `from_structured` over a document.
pub(crate) fn structured(data: &[u8]) {
    match from_structured(data) {
        Ok(envelope) => {
            let text = str::from_utf8(data).expect("what is read is UTF-8");
            carries(&envelope, text);
            travels(&envelope);
        }
        Err(fault) => place::in_document(&fault, data),
    }
}

/// `from_batch` over a document.
pub(crate) fn batch(data: &[u8]) {
    let envelopes = match from_batch(data) {
        Ok(envelopes) => envelopes,
        Err(fault) => return place::in_batch(&fault, data),
    };
    let items: Vec<&RawValue> = serde_json::from_slice(data).expect("what is read is an array");
    assert_eq!(items.len(), envelopes.len());
    for (item, envelope) in items.iter().zip(&envelopes) {
        let alone = from_structured(item.get().as_bytes());
        assert_eq!(alone.as_ref(), Ok(envelope), "alone it reads differently");
        carries(envelope, item.get());
    }
    if let Some(first) = envelopes.first() {
        travels(first);
    }
    let written = to_batch(envelopes.iter().map(|envelope| (envelope, None)));
    let written = written.expect("what is read can be written");
    assert_eq!(from_batch(written.as_bytes()), Ok(envelopes));
}

/// The data of a document are in the envelope byte for byte.
fn carries(envelope: &Envelope, document: &str) {
    let members: BTreeMap<String, &RawValue> =
        serde_json::from_str(document).expect("what is read is an object");
    let bytes = envelope.payload.as_bytes();
    match (members.get("data"), members.get("data_base64")) {
        (Some(data), None) => match &envelope.payload {
            Payload::Json(text) => assert_eq!(data.get(), &**text),
            Payload::Binary(_) => {
                let text: String = serde_json::from_str(data.get()).expect("a string");
                assert_eq!(bytes, text.as_bytes());
            }
        },
        (None, Some(data)) => {
            let text: String = serde_json::from_str(data.get()).expect("a string");
            assert_eq!(base64(bytes), text);
        }
        (None, None) => assert!(bytes.is_empty()),
        (Some(_), Some(_)) => panic!("data twice are read"),
    }
}

/// Standard base64 with padding, by hand: no code is shared with what is looked at.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut word = [0_u8; 3];
        word[..chunk.len()].copy_from_slice(chunk);
        let word = u32::from_be_bytes([0, word[0], word[1], word[2]]);
        for digit in 0..4 {
            let bits = (word >> (18 - 6 * digit)) & 63;
            text.push(match digit <= chunk.len() {
                true => char::from(DIGITS[bits as usize]),
                false => '=',
            });
        }
    }
    text
}

/// What was read can be written in every mode, and reads back equal.
pub(crate) fn travels(envelope: &Envelope) {
    let at = Some(Timestamp::from_micros(1_764_511_200_123_456));
    for recorded_at in [None, at] {
        let text = to_structured(envelope, recorded_at).expect("what is read can be written");
        assert_eq!(
            from_structured(text.as_bytes()).as_ref(),
            Ok(envelope),
            "{text}"
        );
        let event = to_binary(envelope, recorded_at).expect("what is read can be written");
        assert_eq!(event.body, envelope.payload.as_bytes());
        for (name, value) in &event.headers {
            let is_plain = |text: &str| text.bytes().all(|b| matches!(b, 0x20..=0x7e));
            assert!(
                is_plain(name) && is_plain(value),
                "{name} cannot be a header"
            );
        }
        let headers = event.headers.iter();
        let headers = headers.map(|(name, value)| (name.as_str(), value.as_bytes()));
        match from_binary(headers, event.body) {
            Ok(read) => assert_eq!(read, taken_for_json(envelope)),
            Err(fault) => {
                // Bytes that nobody called JSON, and are so deep that nobody may.
                let is_deep = fault.kind == FaultKind::TooDeep && fault.place == Place::Body;
                assert!(is_deep && is_undeclared(envelope), "{fault}");
            }
        }
    }
}

fn is_undeclared(envelope: &Envelope) -> bool {
    let has_type = envelope.attributes.contains_key("datacontenttype");
    !has_type && matches!(envelope.payload, Payload::Binary(_))
}

/// The one thing that binary mode cannot say: that a JSON object or array without a content type
/// is only bytes.
pub(crate) fn taken_for_json(envelope: &Envelope) -> Envelope {
    let mut read = envelope.clone();
    let bytes = envelope.payload.as_bytes();
    let is_document = matches!(bytes.trim_ascii_start().first(), Some(b'{' | b'['));
    if is_undeclared(envelope)
        && is_document
        && let Ok(text) = str::from_utf8(bytes)
        && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
    {
        read.payload = Payload::Json(text.into());
    }
    read
}
