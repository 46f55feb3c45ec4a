//! Binary mode: attributes in `ce-*` headers, data as the body.

use super::attributes::{self, Incoming};
use super::data;
use super::fault::{EventFault, FaultKind, Layout, Place};
use super::percent;
use crate::envelope::Envelope;
use crate::timestamp::Timestamp;

/// An event to be sent in binary mode.
#[derive(Clone, PartialEq, Eq)]
pub struct BinaryEvent<'a> {
    /// Header names in lower case and percent-encoded values, printable ASCII throughout; the
    /// content type among them where there is one.
    pub headers: Vec<(String, String)>,
    /// The payload's bytes.
    pub body: &'a [u8],
}

/// Withholds attributes and data.
impl std::fmt::Debug for BinaryEvent<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("BinaryEvent")
            .field("headers", &names)
            .field("body_bytes", &self.body.len())
            .finish()
    }
}

/// Reads an event from a request's headers and body. Headers other than `ce-*` and `content-type`
/// are not looked at.
///
/// # Errors
/// An [`EventFault`] that names the header, or the body.
pub fn from_binary<'h>(
    headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
    body: &[u8],
) -> Result<Envelope, EventFault> {
    const LAYOUT: Layout = Layout::Binary;
    let mut incoming = Incoming::new(LAYOUT);
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        if name == "content-type" {
            let text = str::from_utf8(value).map_err(|_| {
                LAYOUT.fault(FaultKind::Encoding, "datacontenttype", percent::BAD_BYTE)
            })?;
            incoming.insert("datacontenttype", text.trim().to_owned())?;
        } else if let Some(name) = name.strip_prefix("ce-") {
            if name == "datacontenttype" || name == "data" {
                return Err(EventFault {
                    kind: FaultKind::BadName,
                    place: Place::Header(format!("ce-{name}")),
                    index: None,
                    message: "the content type goes into the header content-type, data into the \
                              body"
                        .to_owned(),
                });
            }
            let value = percent::decode(value)
                .map_err(|message| LAYOUT.fault(FaultKind::Encoding, name, message))?;
            incoming.insert(name, value)?;
        }
    }
    let payload = data::payload_of(LAYOUT, "data", incoming.content_type(), body.to_vec())?;
    incoming.into_envelope(payload)
}

/// Writes an event for a request. `recorded_at` is when the log took it, where that is known.
///
/// # Errors
/// An [`EventFault`] where the envelope has something that cannot travel: no source, an attribute
/// name outside `a`–`z` and `0`–`9`, an attribute that is also a field, a content type that is no
/// media type, a negative aggregate version.
pub fn to_binary(
    envelope: &Envelope,
    recorded_at: Option<Timestamp>,
) -> Result<BinaryEvent<'_>, EventFault> {
    let list = attributes::outgoing(Layout::Binary, envelope, recorded_at)?;
    let mut headers: Vec<(String, String)> = list
        .into_iter()
        .map(|(name, value)| (format!("ce-{name}"), percent::encode(&value)))
        .collect();
    if let Some(content_type) = attributes::content_type_of(Layout::Binary, envelope)? {
        headers.push(("content-type".to_owned(), content_type.to_owned()));
    }
    Ok(BinaryEvent {
        headers,
        body: envelope.payload.as_bytes(),
    })
}
