//! Attributes by name, strictly checked, to and from the fields of an envelope.

use std::collections::BTreeMap;

use super::data::{self, JSON};
use super::fault::{EventFault, FaultKind, Layout};
use super::{TEXT_BYTES_MAX, TYPE_BYTES_MAX};
use crate::envelope::{Envelope, Payload};
use crate::timestamp::Timestamp;

/// Attributes that have a field of their own, so that they cannot be among an envelope's others.
const FIELDS: [&str; 12] = [
    "id",
    "source",
    "specversion",
    "type",
    "subject",
    "aggregatetype",
    "partitionkey",
    "operationid",
    "schemaversion",
    "time",
    "expirytime",
    "recordedtime",
];

/// Whether an attribute is a field of the message, and never among its other attributes.
pub(crate) fn is_field(name: &str) -> bool {
    FIELDS.contains(&name)
}

/// The attributes of one event on its way in.
pub(super) struct Incoming {
    layout: Layout,
    values: BTreeMap<String, String>,
}

impl Incoming {
    pub(super) const fn new(layout: Layout) -> Self {
        Self {
            layout,
            values: BTreeMap::new(),
        }
    }

    /// Takes an attribute; refuses bad names, bad characters and a second value.
    pub(super) fn insert(&mut self, name: &str, value: String) -> Result<(), EventFault> {
        check_name(self.layout, name)?;
        if let Some(bad) = value.chars().find(|c| !is_allowed(*c)) {
            let bad = u32::from(bad);
            let message = format!("U+{bad:04X} is not allowed in an attribute");
            return Err(self.layout.fault(FaultKind::BadValue, name, message));
        }
        if self.values.insert(name.to_owned(), value).is_some() {
            return Err(self.layout.fault(FaultKind::Duplicate, name, "given twice"));
        }
        Ok(())
    }

    pub(super) fn content_type(&self) -> Option<&str> {
        self.values.get("datacontenttype").map(String::as_str)
    }

    /// The envelope, once everything is taken.
    pub(super) fn into_envelope(mut self, payload: Payload) -> Result<Envelope, EventFault> {
        let version = self.required("specversion", usize::MAX)?;
        if version != "1.0" {
            return Err(self.layout.fault(
                FaultKind::UnsupportedVersion,
                "specversion",
                "only 1.0 is understood",
            ));
        }
        self.check_uris()?;
        self.check_content_type(&payload)?;
        // Only the log can say when it took a message.
        self.values.remove("recordedtime");
        let id = self.required("id", TEXT_BYTES_MAX)?;
        let source = self.required("source", TEXT_BYTES_MAX)?;
        let message_type = self.required("type", TYPE_BYTES_MAX)?;
        let aggregate_type = self
            .optional("aggregatetype", TYPE_BYTES_MAX)?
            .unwrap_or_else(|| aggregate_of(&message_type).to_owned());
        let aggregate_id = self.optional("subject", TEXT_BYTES_MAX)?;
        let aggregate_id = aggregate_id.unwrap_or_else(|| id.clone());
        Ok(Envelope {
            source: Some(source),
            operation_id: self.optional("operationid", TEXT_BYTES_MAX)?,
            partition_key: self.optional("partitionkey", TEXT_BYTES_MAX)?,
            schema_version: self.schema_version()?,
            aggregate_version: self.aggregate_version(),
            occurred_at: self.timestamp("time")?,
            expires_at: self.timestamp("expirytime")?,
            attributes: self.values,
            ..Envelope::new(id, aggregate_type, aggregate_id, message_type, payload)
        })
    }

    fn required(&mut self, name: &str, bytes_max: usize) -> Result<String, EventFault> {
        match self.optional(name, bytes_max)? {
            Some(value) => Ok(value),
            None => {
                let message = format!("{name} is required");
                Err(self.layout.fault(FaultKind::Missing, name, message))
            }
        }
    }

    fn optional(&mut self, name: &str, bytes_max: usize) -> Result<Option<String>, EventFault> {
        let Some(value) = self.values.remove(name) else {
            return Ok(None);
        };
        if value.is_empty() {
            let message = format!("{name} must not be empty");
            return Err(self.layout.fault(FaultKind::Missing, name, message));
        }
        if value.len() > bytes_max {
            let message = format!("{} bytes; at most {bytes_max} are accepted", value.len());
            return Err(self.layout.fault(FaultKind::TooLong, name, message));
        }
        Ok(Some(value))
    }

    fn schema_version(&mut self) -> Result<Option<i32>, EventFault> {
        let Some(value) = self.values.remove("schemaversion") else {
            return Ok(None);
        };
        value.parse().map(Some).map_err(|_| {
            let message = "must be a 32-bit integer";
            self.layout
                .fault(FaultKind::BadValue, "schemaversion", message)
        })
    }

    /// A `sequence` in digits is the aggregate's version. Other producers may order by other texts;
    /// those stay what they are.
    fn aggregate_version(&mut self) -> Option<i64> {
        let value = self.values.get("sequence")?;
        let is_decimal =
            (1..=20).contains(&value.len()) && value.bytes().all(|b| b.is_ascii_digit());
        let version = value.parse().ok().filter(|_| is_decimal)?;
        self.values.remove("sequence");
        Some(version)
    }

    fn timestamp(&mut self, name: &str) -> Result<Option<Timestamp>, EventFault> {
        let Some(value) = self.values.remove(name) else {
            return Ok(None);
        };
        // An offset may lead out of the years that can be written again.
        let can_travel = |time: &Timestamp| is_rfc3339(&value) && is_rfc3339(&time.to_string());
        let parsed = value.parse().ok().filter(can_travel);
        parsed.map(Some).ok_or_else(|| {
            let message = "must be an RFC 3339 timestamp, like 2026-03-01T12:00:00Z";
            self.layout.fault(FaultKind::BadValue, name, message)
        })
    }

    fn check_uris(&self) -> Result<(), EventFault> {
        for name in ["source", "dataschema", "dataref"] {
            if self
                .values
                .get(name)
                .is_some_and(|value| !is_uri_text(value))
            {
                let message = "has a character that no URI has: percent-encode it";
                return Err(self.layout.fault(FaultKind::BadValue, name, message));
            }
        }
        Ok(())
    }

    /// Checks `datacontenttype` and drops it where the payload already says it.
    fn check_content_type(&mut self, payload: &Payload) -> Result<(), EventFault> {
        let Some(content_type) = self.content_type() else {
            return Ok(());
        };
        if !data::is_media_type(content_type) {
            let message = "must be a media type, like application/json";
            let name = "datacontenttype";
            return Err(self.layout.fault(FaultKind::BadValue, name, message));
        }
        if content_type == JSON && matches!(payload, Payload::Json(_)) {
            self.values.remove("datacontenttype");
        }
        Ok(())
    }
}

/// The attributes of an envelope in the order in which they are written, without the content type.
///
/// Values are not encoded yet.
pub(super) fn outgoing(
    layout: Layout,
    envelope: &Envelope,
    recorded_at: Option<Timestamp>,
) -> Result<Vec<(&str, String)>, EventFault> {
    let Some(source) = &envelope.source else {
        return Err(layout.fault(FaultKind::Missing, "source", "source is required"));
    };
    let sequence = match envelope.aggregate_version {
        Some(version) if version < 0 => {
            let message = "a negative aggregate version cannot be written in digits";
            return Err(layout.fault(FaultKind::BadValue, "sequence", message));
        }
        version => version.map(|version| format!("{version:020}")),
    };
    let texts = [
        ("specversion", Some("1.0")),
        ("id", Some(envelope.id.as_str())),
        ("source", Some(source)),
        ("type", Some(&envelope.message_type)),
        ("subject", Some(&envelope.aggregate_id)),
        ("aggregatetype", Some(&envelope.aggregate_type)),
        ("operationid", envelope.operation_id.as_deref()),
        ("partitionkey", envelope.partition_key.as_deref()),
        ("sequence", sequence.as_deref()),
    ];
    let mut list = Vec::with_capacity(16 + envelope.attributes.len());
    for (name, value) in texts {
        let Some(value) = value else { continue };
        if value.is_empty() {
            let message = format!("{name} must not be empty");
            return Err(layout.fault(FaultKind::Missing, name, message));
        }
        list.push((name, value.to_owned()));
    }
    if let Some(version) = envelope.schema_version {
        list.push(("schemaversion", version.to_string()));
    }
    let times = [
        ("time", envelope.occurred_at),
        ("expirytime", envelope.expires_at),
        ("recordedtime", recorded_at),
    ];
    for (name, time) in times {
        let Some(time) = time else { continue };
        let text = time.to_string();
        if !is_rfc3339(&text) {
            let message = "is outside the years that RFC 3339 can write";
            return Err(layout.fault(FaultKind::BadValue, name, message));
        }
        list.push((name, text));
    }
    for (name, value) in &envelope.attributes {
        check_name(layout, name)?;
        if is_field(name) || (name == "sequence" && sequence.is_some()) {
            let message = "is a field of the message and cannot be among its other attributes";
            return Err(layout.fault(FaultKind::Duplicate, name, message));
        }
        if name != "datacontenttype" {
            list.push((name, value.clone()));
        }
    }
    Ok(list)
}

/// The content type that an envelope is written with.
pub(super) fn content_type_of(
    layout: Layout,
    envelope: &Envelope,
) -> Result<Option<&str>, EventFault> {
    let given = envelope.attributes.get("datacontenttype");
    if given.is_some_and(|given| !data::is_media_type(given)) {
        let message = "must be a media type, like application/json";
        return Err(layout.fault(FaultKind::BadValue, "datacontenttype", message));
    }
    let implied = matches!(envelope.payload, Payload::Json(_)).then_some(JSON);
    Ok(given.map(String::as_str).or(implied))
}

fn check_name(layout: Layout, name: &str) -> Result<(), EventFault> {
    let is_good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    if name.is_empty() || name == "data" || !name.bytes().all(is_good) {
        let message = "attribute names have only a to z and 0 to 9, and data is not one";
        return Err(layout.fault(FaultKind::BadName, name, message));
    }
    Ok(())
}

/// No control characters and no noncharacters.
fn is_allowed(c: char) -> bool {
    let code = u32::from(c);
    !c.is_control() && !(0xfdd0..=0xfdef).contains(&code) && code & 0xfffe != 0xfffe
}

/// What stands before the first dot, or all where nothing does.
fn aggregate_of(message_type: &str) -> &str {
    let first = message_type.split('.').next().unwrap_or_default();
    if first.is_empty() {
        message_type
    } else {
        first
    }
}

/// Only characters that RFC 3986 knows, percent signs followed by two digits.
fn is_uri_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().all(|(i, byte)| match byte {
        b'%' => bytes
            .get(i + 1..i + 3)
            .is_some_and(|pair| pair.iter().all(u8::is_ascii_hexdigit)),
        other => other.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=".contains(other),
    })
}

/// The shape `2026-03-01T12:00:00[.123]Z`, or with an offset `+01:00`.
fn is_rfc3339(text: &str) -> bool {
    let matches = |text: &[u8], shape: &[u8]| {
        text.len() == shape.len()
            && text.iter().zip(shape).all(|(byte, wanted)| match wanted {
                b'0' => byte.is_ascii_digit(),
                wanted => byte.eq_ignore_ascii_case(wanted),
            })
    };
    let Some((head, mut rest)) = text.as_bytes().split_at_checked(19) else {
        return false;
    };
    if let Some(fraction) = rest.strip_prefix(b".") {
        let digits = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return false;
        }
        rest = &fraction[digits..];
    }
    let is_offset = [b"Z".as_slice(), b"+00:00", b"-00:00"];
    matches(head, b"0000-00-00T00:00:00") && is_offset.iter().any(|shape| matches(rest, shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_have_the_shape_of_rfc_3339() {
        for good in [
            "2026-03-01T12:00:00Z",
            "2026-03-01t12:00:00z",
            "2026-03-01T12:00:00.123456789+01:00",
        ] {
            assert!(is_rfc3339(good), "{good}");
        }
        for bad in [
            "2026-03-01 12:00:00Z",
            "2026-03-01T12:00Z",
            "2026-03-01T12:00:00",
            "2026-03-01T12:00:00.Z",
            "2026-03-01T12:00:00+0100",
            "2026-03-01T12:00:00Z[UTC]",
            "-002026-03-01T12:00:00Z",
            "é",
            "",
        ] {
            assert!(!is_rfc3339(bad), "{bad}");
        }
    }

    #[test]
    fn uris_have_no_blanks_and_whole_escapes() {
        assert!(is_uri_text("//shop/orders?x=%20#é".trim_end_matches('é')));
        for bad in ["a b", "%2", "%zz", "<x>", "é"] {
            assert!(!is_uri_text(bad), "{bad}");
        }
    }

    #[test]
    fn an_aggregate_type_is_never_empty() {
        assert_eq!(aggregate_of("order.accepted"), "order");
        assert_eq!(aggregate_of("order"), "order");
        assert_eq!(aggregate_of(".order"), ".order");
    }
}
