//! Where a broker keeps a message, and the identity that follows from it.

use crate::cloudevents::{self, EventFault};
use crate::envelope::Envelope;

/// Type of messages that name none.
const FOREIGN_TYPE: &str = "foreign";

/// Where a broker keeps a message. What is in it is the same on every delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coordinates {
    /// Which log of which broker, as a URI reference without host: `nats:ORDERS`.
    pub log: String,
    /// Topic, subject or routing key that it was published to.
    pub topic: String,
    /// Its place in the log; none where the broker keeps no places.
    pub place: Option<String>,
}

impl Coordinates {
    /// What is kept at a place of a log, which has a name of its own in a kind of broker.
    #[must_use]
    pub fn new(kind: &str, log: &str, topic: impl Into<String>, place: Option<String>) -> Self {
        Self {
            log: format!("{kind}:{}", uri_text(log)),
            topic: topic.into(),
            place,
        }
    }

    /// The envelope of a message that is no event, whose sender gave it this id, or none.
    ///
    /// A place in a broker's log is an id of its own, so a delivery that comes again is the same
    /// message. The topic is the aggregate, which keeps what came in one topic in its order.
    ///
    /// # Errors
    /// [`EventFault`] when it says that it is JSON and is not, and when there is neither an id nor
    /// a place: then nothing tells its second delivery from another message.
    pub fn foreign(
        &self,
        id: Option<&str>,
        content_type: Option<&str>,
        body: &[u8],
    ) -> Result<Envelope, EventFault> {
        let id = id.filter(|id| !id.is_empty()).or(self.place.as_deref());
        let attributes = [
            ("specversion", Some("1.0")),
            ("id", id),
            ("source", Some(self.log.as_str())),
            ("type", Some(FOREIGN_TYPE)),
            (
                "subject",
                Some(self.topic.as_str()).filter(|topic| !topic.is_empty()),
            ),
            ("aggregatetype", Some(FOREIGN_TYPE)),
        ];
        let given = attributes.into_iter();
        let given = given.filter_map(|(name, value)| Some((name, value?.as_bytes())));
        cloudevents::from_properties(given, content_type, body)
    }
}

/// A name as part of a URI.
fn uri_text(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(char::from(byte));
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Payload;
    use crate::cloudevents::FaultKind;

    fn at(place: Option<&str>) -> Coordinates {
        Coordinates::new("nats", "ORDERS", "orders.eu", place.map(Into::into))
    }

    #[test]
    fn a_place_is_an_identity() {
        let envelope = at(Some("17")).foreign(None, None, b"{\"a\":1}").unwrap();
        assert_eq!(envelope.id, "17");
        assert_eq!(envelope.source.as_deref(), Some("nats:ORDERS"));
        assert_eq!(envelope.key(), "orders.eu");
        assert_eq!(envelope.payload, Payload::Json("{\"a\":1}".into()));
        let again = at(Some("17")).foreign(None, None, b"{\"a\":1}").unwrap();
        assert_eq!(again, envelope);
    }

    #[test]
    fn any_name_of_a_log_is_a_source_and_no_topic_no_aggregate() {
        let odd = Coordinates::new("rabbitmq", "a b\u{e9}%", "", Some("1".into()));
        let envelope = odd.foreign(None, None, b"").unwrap();
        assert_eq!(envelope.source.as_deref(), Some("rabbitmq:a%20b%C3%A9%25"));
        assert_eq!(envelope.aggregate_id, "1");
    }

    #[test]
    fn the_senders_id_goes_first_and_nothing_is_made_up() {
        let envelope = at(Some("17")).foreign(Some("m-1"), None, b"x").unwrap();
        assert_eq!(envelope.id, "m-1");
        assert_eq!(envelope.payload, Payload::Binary(b"x".as_slice().into()));
        let fault = at(None).foreign(Some(""), None, b"x").unwrap_err();
        assert_eq!(fault.kind, FaultKind::Missing);
        let json = Some("application/json");
        assert_eq!(
            at(Some("1")).foreign(None, json, b"{").unwrap_err().kind,
            FaultKind::Data
        );
    }
}
