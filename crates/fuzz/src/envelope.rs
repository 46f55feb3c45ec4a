//! Any message a program may hold: written or refused with a place; what is written is read with
//! the same fields and the same bytes, or refused with a place, in every mode alike.

use onceward_core::cloudevents::{
    EventFault, FaultKind, from_binary, from_structured, to_binary, to_structured,
};
use onceward_core::{Envelope, Payload, Timestamp};

use crate::{cloudevents, place, request};

/// Fields, one on a line, then attributes as headers, a blank line and the payload. A `-` leaves a
/// field out.
pub(crate) fn round_trip(data: &[u8]) {
    let envelope = envelope(data);
    let text = to_structured(&envelope, None);
    let event = to_binary(&envelope, None);
    if let Err(fault) = &event {
        assert!(text.is_err(), "only structured mode writes it: {fault}");
        place::plain(&fault.to_string());
    }
    let structured = text.ok().map(|text| from_structured(text.as_bytes()));
    let binary = event.ok().map(|event| {
        let headers = event.headers.iter();
        let headers = headers.map(|(name, value)| (name.as_str(), value.as_bytes()));
        from_binary(headers, event.body)
    });
    for read in [&structured, &binary] {
        match read {
            Some(Ok(read)) => {
                keeps(&envelope, read);
                cloudevents::travels(read);
            }
            Some(Err(fault)) => place::plain(&fault.to_string()),
            None => {}
        }
    }
    if let (Some(structured), Some(binary)) = (structured, binary) {
        agree(&structured, &binary);
    }
}

fn envelope(data: &[u8]) -> Envelope {
    let (head, payload) = request::head_and_body(data);
    let mut lines = head.into_iter();
    let mut next = || {
        let line = lines.next().map(String::from_utf8_lossy)?;
        (line != "-").then(|| line.into_owned())
    };
    let payload = match (payload.split_first(), str::from_utf8(payload)) {
        // A claim to be JSON, true or not.
        (Some((b'!', _)), Ok(text)) => Payload::Json(text[1..].into()),
        _ => Payload::Binary(payload.into()),
    };
    let mut part = || next().unwrap_or_default();
    let (id, kind, aggregate, message_type) = (part(), part(), part(), part());
    let mut envelope = Envelope::new(id, kind, aggregate, message_type, payload);
    let time = |text: Option<String>| text?.parse().ok().map(Timestamp::from_micros);
    envelope.source = next();
    envelope.operation_id = next();
    envelope.partition_key = next();
    envelope.schema_version = next().and_then(|text| text.parse().ok());
    envelope.aggregate_version = next().and_then(|text| text.parse().ok());
    envelope.occurred_at = time(next());
    envelope.expires_at = time(next());
    for line in lines {
        let (name, value) = request::header(line);
        let value = String::from_utf8_lossy(value).into_owned();
        envelope.attributes.insert(name, value);
    }
    envelope
}

/// Fields and bytes are those that were written.
fn keeps(written: &Envelope, read: &Envelope) {
    assert_eq!(written.payload.as_bytes(), read.payload.as_bytes());
    let mut expected = written.clone();
    expected.payload = read.payload.clone();
    // The name on the wire of a field that is empty here, and what JSON says by itself.
    if expected.aggregate_version.is_none() && read.aggregate_version.is_some() {
        let text = expected
            .attributes
            .remove("sequence")
            .expect("from an attribute");
        expected.aggregate_version = text.parse().ok();
    }
    let content_type = "datacontenttype";
    if !read.attributes.contains_key(content_type) {
        let given = expected.attributes.remove(content_type);
        assert!(given.is_none_or(|given| given == "application/json"));
    } else if !expected.attributes.contains_key(content_type) {
        // Binary mode does not look into the data; no data at all are no JSON when read.
        assert!(written.payload.is_empty() && matches!(written.payload, Payload::Json(_)));
        expected
            .attributes
            .insert(content_type.to_owned(), "application/json".to_owned());
    }
    assert_eq!(&expected, read);
}

/// Both modes read the same, and refuse the same but for what is wrong with the data.
fn agree(structured: &Result<Envelope, EventFault>, binary: &Result<Envelope, EventFault>) {
    let is_of_data = |fault: &EventFault| {
        let kinds = [FaultKind::Data, FaultKind::TooDeep, FaultKind::Encoding];
        kinds.contains(&fault.kind)
    };
    match (structured, binary) {
        (Ok(structured), Ok(binary)) => {
            assert_eq!(&cloudevents::taken_for_json(structured), binary);
        }
        (Err(fault), Ok(_)) | (Ok(_), Err(fault)) => {
            assert!(is_of_data(fault), "only one mode refuses it: {fault}");
        }
        (Err(one), Err(other)) => {
            let is_same = one.kind == other.kind;
            assert!(
                is_same || is_of_data(one) || is_of_data(other),
                "{one} / {other}"
            );
        }
    }
}
