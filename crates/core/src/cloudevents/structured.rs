//! Structured mode and batches: events as JSON, their data left as they were written.

use std::cell::RefCell;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::attributes::{self, Incoming};
use super::data;
use super::fault::{EventFault, FaultKind, Layout};
use crate::envelope::{Envelope, Payload};
use crate::timestamp::Timestamp;

/// Reads one event from `application/cloudevents+json`.
///
/// # Errors
/// An [`EventFault`] with a pointer into the document.
pub fn from_structured(body: &[u8]) -> Result<Envelope, EventFault> {
    event(Layout::Structured, utf8(body)?)
}

/// Reads events from `application/cloudevents-batch+json`; the array may be empty.
///
/// # Errors
/// An [`EventFault`] with a pointer into the document and the index of the event.
pub fn from_batch(body: &[u8]) -> Result<Vec<Envelope>, EventFault> {
    let read = RefCell::new(None);
    let mut json = serde_json::Deserializer::from_str(utf8(body)?);
    let items = json
        .deserialize_seq(ItemsVisitor { read: &read })
        .and_then(|items| json.end().map(|()| items))
        .map_err(|error| {
            let started = *read.borrow();
            match started {
                None => Layout::Structured.fault(FaultKind::Syntax, "", not_a("an array", &error)),
                Some(index) => {
                    let text = data::describe(&error);
                    Layout::InBatch(index).fault(FaultKind::Syntax, "", text)
                }
            }
        })?;
    let items = items.into_iter().enumerate();
    items
        .map(|(index, item)| event(Layout::InBatch(index), item.get()))
        .collect()
}

/// Writes one event as `application/cloudevents+json`. `recorded_at` is when the log took it, where
/// that is known.
///
/// # Errors
/// As for [`to_binary`](super::to_binary), and when the payload claims to be JSON and is not.
pub fn to_structured(
    envelope: &Envelope,
    recorded_at: Option<Timestamp>,
) -> Result<String, EventFault> {
    let mut text = String::with_capacity(512 + envelope.payload.len());
    write_event(Layout::Structured, envelope, recorded_at, &mut text)?;
    Ok(text)
}

/// Writes events as `application/cloudevents-batch+json`.
///
/// # Errors
/// As for [`to_structured`], with the index of the event.
pub fn to_batch<'e>(
    events: impl IntoIterator<Item = (&'e Envelope, Option<Timestamp>)>,
) -> Result<String, EventFault> {
    let mut text = String::from("[");
    for (index, (envelope, recorded_at)) in events.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        write_event(Layout::InBatch(index), envelope, recorded_at, &mut text)?;
    }
    text.push(']');
    Ok(text)
}

fn utf8(body: &[u8]) -> Result<&str, EventFault> {
    str::from_utf8(body).map_err(|error| {
        let message = format!("byte {} is not UTF-8", error.valid_up_to());
        Layout::Structured.fault(FaultKind::Encoding, "", message)
    })
}

fn not_a(what: &str, error: &serde_json::Error) -> String {
    format!("{what} is expected, but {}", data::describe(error))
}

fn event(layout: Layout, text: &str) -> Result<Envelope, EventFault> {
    let mut incoming = Incoming::new(layout);
    let (mut plain, mut base64) = (None, None);
    for (name, value) in members(layout, text)? {
        let seat = match name.as_str() {
            "data" => &mut plain,
            "data_base64" => &mut base64,
            _ => {
                if let Some(value) = attribute(layout, &name, value)? {
                    incoming.insert(&name, value)?;
                } else if !name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
                {
                    // An absent value does not make a bad name good.
                    incoming.insert(&name, String::new())?;
                }
                continue;
            }
        };
        if seat.replace(value).is_some() {
            return Err(layout.fault(FaultKind::Duplicate, &name, "given twice"));
        }
    }
    let payload = match (plain, base64) {
        (None, None) => Payload::Binary(Box::default()),
        (Some(_), Some(_)) => {
            let message = "data and data_base64 exclude each other";
            return Err(layout.fault(FaultKind::Data, "data_base64", message));
        }
        (Some(value), None) => json_data(layout, incoming.content_type(), value)?,
        (None, Some(value)) => base64_data(layout, incoming.content_type(), value)?,
    };
    incoming.into_envelope(payload)
}

/// An attribute's value as text; `None` for `null`, which means absent.
fn attribute(layout: Layout, name: &str, value: &RawValue) -> Result<Option<String>, EventFault> {
    let text = value.get();
    let bad = |message: &str| layout.fault(FaultKind::BadValue, name, message);
    match text.as_bytes().first() {
        Some(b'"') => serde_json::from_str(text)
            .map(Some)
            .map_err(|_| bad("has an escape that is no Unicode character")),
        Some(b't' | b'f') => Ok(Some(text.to_owned())),
        Some(b'n') => Ok(None),
        Some(b'-' | b'0'..=b'9') => {
            let number: i32 = text.parse().map_err(|_| {
                bad("numbers in attributes are 32-bit integers: write another one as a string")
            })?;
            Ok(Some(number.to_string()))
        }
        _ => Err(bad("attributes are strings, booleans or integers")),
    }
}

fn json_data(
    layout: Layout,
    content_type: Option<&str>,
    value: &RawValue,
) -> Result<Payload, EventFault> {
    let text = value.get();
    if content_type.is_none_or(data::is_json) {
        data::check_nesting(layout, "data", text)?;
        return Ok(Payload::Json(text.into()));
    }
    // Under another content type a JSON string holds the text itself.
    if !text.starts_with('"') {
        let message = "must be a string under a content type that is not JSON";
        return Err(layout.fault(FaultKind::Data, "data", message));
    }
    let text: String = serde_json::from_str(text).map_err(|_| {
        let message = "has an escape that is no Unicode character";
        layout.fault(FaultKind::Data, "data", message)
    })?;
    Ok(Payload::Binary(text.into_bytes().into()))
}

fn base64_data(
    layout: Layout,
    content_type: Option<&str>,
    value: &RawValue,
) -> Result<Payload, EventFault> {
    let bytes = serde_json::from_str::<String>(value.get())
        .ok()
        .and_then(|text| STANDARD.decode(text).ok())
        .ok_or_else(|| {
            let message = "must be a string in standard base64 with padding";
            layout.fault(FaultKind::Data, "data_base64", message)
        })?;
    data::payload_of(layout, "data_base64", content_type, bytes)
}

fn write_event(
    layout: Layout,
    envelope: &Envelope,
    recorded_at: Option<Timestamp>,
    text: &mut String,
) -> Result<(), EventFault> {
    let mut separator = '{';
    let mut member = |text: &mut String, name: &str| {
        text.push(std::mem::replace(&mut separator, ','));
        text.push('"');
        text.push_str(name);
        text.push_str("\":");
    };
    for (name, value) in attributes::outgoing(layout, envelope, recorded_at)? {
        member(text, name);
        if name == "schemaversion" {
            text.push_str(&value);
        } else {
            push_string(text, &value);
        }
    }
    if let Some(content_type) = attributes::content_type_of(layout, envelope)? {
        member(text, "datacontenttype");
        push_string(text, content_type);
    }
    match &envelope.payload {
        Payload::Json(json) => {
            // Checked so that a false claim cannot break out of its place in the document.
            if serde_json::from_str::<IgnoredAny>(json).is_err() {
                let message = "the payload claims to be JSON and is not";
                return Err(layout.fault(FaultKind::Data, "data", message));
            }
            // Blanks around the text would be lost as the document's own.
            if json.trim_ascii().len() == json.len() && is_written_as_json(envelope) {
                member(text, "data");
                text.push_str(json);
            } else {
                member(text, "data_base64");
                push_string(text, &STANDARD.encode(json.as_bytes()));
            }
        }
        Payload::Binary(bytes) if bytes.is_empty() => {}
        Payload::Binary(bytes) => {
            member(text, "data_base64");
            push_string(text, &STANDARD.encode(bytes));
        }
    }
    text.push('}');
    Ok(())
}

/// Whether a reader will take `data` for JSON, which the content type decides.
fn is_written_as_json(envelope: &Envelope) -> bool {
    let given = envelope.attributes.get("datacontenttype");
    given.is_none_or(|given| data::is_json(given))
}

fn push_string(text: &mut String, value: &str) {
    text.push_str(&serde_json::Value::from(value).to_string());
}

type Member<'a> = (String, &'a RawValue);

/// The members of an object in order, duplicates included, values unread.
fn members(layout: Layout, text: &str) -> Result<Vec<Member<'_>>, EventFault> {
    let reading = RefCell::new(String::new());
    let mut json = serde_json::Deserializer::from_str(text);
    json.deserialize_map(MembersVisitor { reading: &reading })
        .and_then(|members| json.end().map(|()| members))
        .map_err(|error| {
            let name = reading.borrow();
            let message = if name.is_empty() {
                not_a("an object", &error)
            } else {
                data::describe(&error)
            };
            layout.fault(FaultKind::Syntax, &name, message)
        })
}

/// Notes which member is being read, so that a fault in it can be placed.
struct MembersVisitor<'r> {
    reading: &'r RefCell<String>,
}

impl<'de> Visitor<'de> for MembersVisitor<'_> {
    type Value = Vec<Member<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            self.reading.replace(name.clone());
            members.push((name, map.next_value()?));
            self.reading.replace(String::new());
        }
        Ok(members)
    }
}

/// Notes which item is being read.
struct ItemsVisitor<'r> {
    read: &'r RefCell<Option<usize>>,
}

impl<'de> Visitor<'de> for ItemsVisitor<'_> {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        loop {
            self.read.replace(Some(items.len()));
            let Some(item) = seq.next_element()? else {
                return Ok(items);
            };
            items.push(item);
        }
    }
}
