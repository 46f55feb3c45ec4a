//! Binary mode where headers are texts of their own: attributes as application properties, data as
//! the body. <https://github.com/cloudevents/spec/blob/main/cloudevents/bindings/amqp-protocol-binding.md>

use super::attributes::{self, Incoming};
use super::data;
use super::fault::{EventFault, FaultKind, Layout};
use crate::envelope::Envelope;
use crate::timestamp::Timestamp;

/// What the names of application properties begin with.
pub const PROPERTY_PREFIX: &str = "cloudEvents:";

/// What they begin with as well, where a colon is not possible.
const PROPERTY_PREFIX_OTHER: &str = "cloudEvents_";

/// An event to be sent with its attributes as properties.
#[derive(Clone, PartialEq, Eq)]
pub struct PropertiesEvent<'a> {
    /// Names without prefix, and values as they are.
    pub attributes: Vec<(&'a str, String)>,
    /// The content type, where there is one.
    pub content_type: Option<&'a str>,
    /// The payload's bytes.
    pub body: &'a [u8],
}

/// Withholds attributes and data.
impl std::fmt::Debug for PropertiesEvent<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.attributes.iter().map(|(name, _)| *name).collect();
        f.debug_struct("PropertiesEvent")
            .field("attributes", &names)
            .field("body_bytes", &self.body.len())
            .finish()
    }
}

/// The attribute that a property holds; none where it is no attribute.
#[must_use]
pub fn attribute_of(property: &str) -> Option<&str> {
    let prefixes = [PROPERTY_PREFIX, PROPERTY_PREFIX_OTHER];
    prefixes
        .iter()
        .find_map(|prefix| property.strip_prefix(prefix))
}

/// Reads an event from attributes by their names without prefix, and a body.
///
/// # Errors
/// An [`EventFault`] that names the property, or the body.
pub fn from_properties<'p>(
    attributes: impl IntoIterator<Item = (&'p str, &'p [u8])>,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Envelope, EventFault> {
    const LAYOUT: Layout = Layout::Properties;
    let mut incoming = Incoming::new(LAYOUT);
    if let Some(content_type) = content_type {
        incoming.insert("datacontenttype", content_type.trim().to_owned())?;
    }
    for (name, value) in attributes {
        if name == "datacontenttype" {
            let message = "the content type is a property of its own";
            return Err(LAYOUT.fault(FaultKind::BadName, name, message));
        }
        let value = str::from_utf8(value)
            .map_err(|_| LAYOUT.fault(FaultKind::Encoding, name, "is not UTF-8"))?;
        incoming.insert(name, value.to_owned())?;
    }
    let payload = data::payload_of(LAYOUT, "data", incoming.content_type(), body.to_vec())?;
    incoming.into_envelope(payload)
}

/// Writes an event as properties. `recorded_at` is when the log took it, where that is known.
///
/// # Errors
/// As for [`to_binary`](super::to_binary).
pub fn to_properties(
    envelope: &Envelope,
    recorded_at: Option<Timestamp>,
) -> Result<PropertiesEvent<'_>, EventFault> {
    const LAYOUT: Layout = Layout::Properties;
    Ok(PropertiesEvent {
        attributes: attributes::outgoing(LAYOUT, envelope, recorded_at)?,
        content_type: attributes::content_type_of(LAYOUT, envelope)?,
        body: envelope.payload.as_bytes(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Payload;

    #[test]
    fn attributes_are_found_under_both_prefixes() {
        assert_eq!(attribute_of("cloudEvents:id"), Some("id"));
        assert_eq!(attribute_of("cloudEvents_id"), Some("id"));
        assert_eq!(attribute_of("cloudevents:id"), None);
        assert_eq!(attribute_of("x-death"), None);
    }

    #[test]
    fn values_stay_as_they_are_and_the_content_type_is_apart() {
        let mut envelope = Envelope::new("50 % é", "order", "o", "t", Payload::Json("1".into()));
        envelope.source = Some("/shop".into());
        let event = to_properties(&envelope, None).unwrap();
        assert!(event.attributes.contains(&("id", "50 % é".to_owned())));
        assert_eq!(event.content_type, Some("application/json"));
        assert!(
            event
                .attributes
                .iter()
                .all(|(name, _)| *name != "datacontenttype")
        );
    }

    #[test]
    fn faults_name_the_property() {
        let fault = from_properties([("id", b"\xff".as_slice())], None, b"").unwrap_err();
        assert_eq!(fault.to_string(), "header cloudEvents:id: is not UTF-8");
        let twice = from_properties([("datacontenttype", b"a/b".as_slice())], None, b"");
        assert_eq!(twice.unwrap_err().kind, FaultKind::BadName);
    }
}
