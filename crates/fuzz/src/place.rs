//! Whether a fault has a place, and the place is one of the input's.

use onceward_core::cloudevents::{EventFault, FaultKind, Place};
use serde_json::Value;

/// Attributes that an event may be refused for lacking.
const REQUIRED: [&str; 4] = ["specversion", "id", "source", "type"];

/// A fault of a binary event is at one of its headers, at one that it lacks, or in its body.
pub(crate) fn in_headers(fault: &EventFault, headers: &[(String, &[u8])]) {
    says_what(fault);
    assert_eq!(fault.index, None, "{fault}");
    match &fault.place {
        Place::Body => {}
        Place::Header(name) => {
            let is_given = headers
                .iter()
                .any(|(given, _)| given.eq_ignore_ascii_case(name));
            let is_lacking = fault.kind == FaultKind::Missing
                && REQUIRED
                    .iter()
                    .any(|lacking| *name == format!("ce-{lacking}"));
            assert!(
                is_given || is_lacking,
                "{fault} names a header that is not there"
            );
        }
        Place::Pointer(_) => panic!("{fault} is no place in a request with headers"),
    }
}

/// A fault of a JSON event is at one of its members, at one that it lacks, or the whole of it.
pub(crate) fn in_document(fault: &EventFault, document: &[u8]) {
    says_what(fault);
    assert_eq!(fault.index, None, "{fault}");
    at_pointer(fault, "", document);
}

/// A fault of a batch is in one of its events, which its index names too.
pub(crate) fn in_batch(fault: &EventFault, document: &[u8]) {
    says_what(fault);
    let Some(index) = fault.index else {
        assert_eq!(fault.place.pointer(), Some(""), "{fault}");
        return;
    };
    let parsed: Option<Vec<Value>> = serde_json::from_slice(document).ok();
    assert!(
        parsed.is_none_or(|items| index < items.len()),
        "{fault} is in an event that is not there"
    );
    at_pointer(fault, &format!("/{index}"), document);
}

fn at_pointer(fault: &EventFault, prefix: &str, document: &[u8]) {
    let pointer = fault.place.pointer().expect("a place in a document");
    let inside = pointer.strip_prefix(prefix).expect("a place in the event");
    if inside.is_empty() {
        return;
    }
    assert!(
        inside.starts_with('/') && !inside[1..].contains('/'),
        "{fault}"
    );
    if fault.kind == FaultKind::Missing && REQUIRED.contains(&&inside[1..]) {
        return;
    }
    // Where another reader takes the document, it finds the member too.
    if let Ok(value) = serde_json::from_slice::<Value>(document) {
        assert!(
            value.pointer(pointer).is_some(),
            "{fault} names a member that is not there"
        );
    }
}

/// Words on one line, which a terminal can be given.
fn says_what(fault: &EventFault) {
    assert!(!fault.message.is_empty());
    plain(&fault.to_string());
}

/// No control characters: they would move a terminal's cursor, or make one line two.
pub(crate) fn plain(shown: &str) {
    assert!(!shown.contains(char::is_control), "{shown:?} is not plain");
}
