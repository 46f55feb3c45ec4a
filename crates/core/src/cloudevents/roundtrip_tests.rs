//! Properties: what is written reads back equal, and no input is altered or makes the codec panic.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::envelope::{Envelope, Payload};
use crate::timestamp::Timestamp;

/// Any text that an attribute may hold, hostile to headers and JSON on purpose.
fn text() -> impl Strategy<Value = String> {
    let c = prop_oneof![
        4 => proptest::char::range('!', '~'),
        1 => Just(' '),
        1 => Just('%'),
        1 => Just('"'),
        1 => Just('\\'),
        2 => any::<char>(),
    ];
    let is_allowed = |c: &char| {
        let code = u32::from(*c);
        !c.is_control() && !(0xfdd0..=0xfdef).contains(&code) && code & 0xfffe != 0xfffe
    };
    proptest::collection::vec(c.prop_filter("not allowed", is_allowed), 1..40)
        .prop_map(|chars| chars.into_iter().collect())
}

fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just(" true".to_owned()),
        "-?[1-9][0-9]{0,30}(\\.[0-9]{1,30})?([eE][+-]?[0-9]{1,4})?",
        text().prop_map(|t| serde_json::Value::from(t).to_string()),
        Just(r#""\u0000\ud83d\uDE00\ud800\/""#.to_owned()),
    ];
    let tree = leaf.prop_recursive(6, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4)
                .prop_map(|v| format!("[{}]", v.join(" ,"))),
            proptest::collection::vec(inner, 0..4).prop_map(|v| {
                let members: Vec<String> = v.iter().map(|v| format!("\"k\": {v}")).collect();
                format!("{{{}\n}}", members.join(","))
            }),
        ]
    });
    (tree, prop_oneof![Just(""), Just("\n"), Just(" \t")]).prop_map(|(tree, end)| tree + end)
}

/// Payload and content type that belong together.
fn content() -> impl Strategy<Value = (Payload, Option<String>)> {
    let vendor = Just(Some("application/vnd.x+json; charset=utf-8".to_owned()));
    let other = Just(Some("application/octet-stream".to_owned()));
    prop_oneof![
        (json(), prop_oneof![Just(None), vendor])
            .prop_map(|(text, kind)| (Payload::Json(text.into()), kind)),
        (any::<Vec<u8>>(), prop_oneof![Just(None), other])
            .prop_filter("taken for JSON", |(bytes, _)| {
                serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_err()
            })
            .prop_map(|(bytes, kind)| (Payload::Binary(bytes.into()), kind)),
    ]
}

fn time() -> impl Strategy<Value = Option<Timestamp>> {
    // From year 0 to the end of 9998.
    proptest::option::of(
        (-62_167_219_200_000_000_i64..253_370_764_800_000_000).prop_map(Timestamp::from_micros),
    )
}

prop_compose! {
    fn envelope()(
        (id, aggregate_type, aggregate_id) in (text(), text(), text()),
        message_type in text(),
        source in "(//|urn:|https://)[a-zA-Z0-9_.~/:?#@!$&'()*+,;=-]{1,20}(%[0-9a-fA-F]{2})?",
        (operation_id, partition_key) in (proptest::option::of(text()), proptest::option::of(text())),
        schema_version in any::<Option<i32>>(),
        aggregate_version in proptest::option::of(0..i64::MAX),
        (occurred_at, expires_at) in (time(), time()),
        others in proptest::collection::btree_map("z[a-z0-9]{0,24}", prop_oneof![Just(String::new()), text()], 0..5),
        (payload, content_type) in content(),
    ) -> Envelope {
        let mut attributes: BTreeMap<String, String> = others;
        if let Some(content_type) = content_type {
            attributes.insert("datacontenttype".into(), content_type);
        }
        Envelope {
            source: Some(source),
            operation_id,
            partition_key,
            schema_version,
            aggregate_version,
            occurred_at,
            expires_at,
            attributes,
            ..Envelope::new(id, aggregate_type, aggregate_id, message_type, payload)
        }
    }
}

fn read_binary(event: &BinaryEvent<'_>) -> Result<Envelope, EventFault> {
    let headers = event.headers.iter();
    from_binary(headers.map(|(n, v)| (n.as_str(), v.as_bytes())), event.body)
}

fn read_properties(event: &PropertiesEvent<'_>) -> Result<Envelope, EventFault> {
    let attributes = event.attributes.iter();
    let attributes = attributes.map(|(name, value)| (*name, value.as_bytes()));
    from_properties(attributes, event.content_type, event.body)
}

/// Bytes around which parsers go wrong, more often than chance would bring them.
fn hostile_bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        3 => proptest::sample::select(b"%\"\\ 0aF{}[]:,\r\n\t\x00\x7f\x80\xc3\xff".to_vec()),
        1 => any::<u8>(),
    ];
    proptest::collection::vec(byte, 0..24)
}

proptest! {
    #[test]
    fn every_mode_reads_back_equal(envelope in envelope(), recorded_at in time()) {
        let written = to_binary(&envelope, recorded_at).unwrap();
        for (name, value) in &written.headers {
            prop_assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
            prop_assert!(value.bytes().all(|b| (0x20..=0x7e).contains(&b)));
        }
        prop_assert_eq!(&read_binary(&written).unwrap(), &envelope);
        let written = to_properties(&envelope, recorded_at).unwrap();
        prop_assert_eq!(&read_properties(&written).unwrap(), &envelope);
        let written = to_structured(&envelope, recorded_at).unwrap();
        prop_assert_eq!(&from_structured(written.as_bytes()).unwrap(), &envelope);
        let written = to_batch([(&envelope, recorded_at), (&envelope, None)]).unwrap();
        prop_assert_eq!(from_batch(written.as_bytes()).unwrap(), [envelope.clone(), envelope]);
    }

    #[test]
    fn hostile_headers_are_kept_or_refused(
        name in "(ce-|CE-)?([a-z0-9]{1,8}|id|source|subject|time|sequence|[ -~]{0,6})",
        value in hostile_bytes(),
        content_type in prop_oneof![Just(b"application/json".to_vec()), hostile_bytes()],
        body in hostile_bytes(),
    ) {
        let headers: [(&str, &[u8]); 6] = [
            ("ce-specversion", b"1.0"), ("ce-id", b"1"), ("ce-source", b"s"), ("ce-type", b"t"),
            (&name, &value), ("content-type", &content_type),
        ];
        if let Ok(envelope) = from_binary(headers, &body) {
            prop_assert_eq!(envelope.payload.as_bytes(), body.as_slice());
            let written = to_binary(&envelope, None).unwrap();
            prop_assert_eq!(read_binary(&written).unwrap(), envelope);
        }
    }

    #[test]
    fn hostile_properties_are_kept_or_refused(
        name in "([a-z0-9]{1,8}|id|source|subject|time|sequence|datacontenttype|[ -~]{0,6})",
        value in hostile_bytes(),
        content_type in proptest::option::of("application/json|[ -~]{0,12}|\\PC{0,4}"),
        body in hostile_bytes(),
    ) {
        let attributes: [(&str, &[u8]); 5] = [
            ("specversion", b"1.0"), ("id", b"1"), ("source", b"s"), ("type", b"t"),
            (&name, &value),
        ];
        if let Ok(envelope) = from_properties(attributes, content_type.as_deref(), &body) {
            prop_assert_eq!(envelope.payload.as_bytes(), body.as_slice());
            let written = to_properties(&envelope, None).unwrap();
            prop_assert_eq!(read_properties(&written).unwrap(), envelope);
        }
    }

    #[test]
    fn damaged_documents_are_kept_or_refused(
        envelope in envelope(),
        at in any::<prop::sample::Index>(),
        damage in hostile_bytes(),
    ) {
        let mut text = to_structured(&envelope, None).unwrap().into_bytes();
        let at = at.index(text.len());
        text.splice(at..at, damage);
        if let Ok(envelope) = from_structured(&text) {
            let written = to_structured(&envelope, None).unwrap();
            prop_assert_eq!(from_structured(written.as_bytes()).unwrap(), envelope);
        }
        text.insert(0, b'[');
        text.push(b']');
        let _ = from_batch(&text);
    }
}
