//! What becomes of a delivery: the message that it is, or something to put aside. Decisions only.

use std::collections::BTreeSet;

use onceward_core::broker::{Content, Faulty, Received};
use onceward_core::cloudevents::to_structured;
use onceward_core::{Digest, Envelope, Payload};

use crate::digest::digest_of;

/// Between the parts of an identity: no attribute can hold it.
const SEPARATOR: char = '\u{1f}';

/// Why something is put aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aside {
    /// No subscription takes its type.
    Unwanted,
    /// It is no event that can be read, or none that the store takes.
    Unreadable,
    /// Another message came under its id.
    Conflicting,
}

impl Aside {
    pub(crate) const ALL: [Self; 3] = [Self::Unwanted, Self::Unreadable, Self::Conflicting];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Unwanted => "unwanted",
            Self::Unreadable => "unreadable",
            Self::Conflicting => "conflicting",
        }
    }

    /// The type under which it is kept in the log.
    pub(crate) fn type_of(self, intake: &str) -> String {
        format!("intake.{intake}.{}", self.as_str())
    }

    /// Why a message of such a type was put aside.
    pub(crate) fn of_type(message_type: &str) -> Option<Self> {
        let (_, last) = message_type.rsplit_once('.')?;
        Self::ALL.into_iter().find(|aside| aside.as_str() == last)
    }
}

/// Attribute that says of a message that was put aside what is wrong with it.
pub(crate) const WRONG: &str = "putasidefor";

/// A delivery, sorted.
#[derive(Clone, Debug)]
pub(crate) struct Sorted {
    /// What the log gets.
    pub(crate) envelope: Envelope,
    /// What it is known by when it comes again.
    pub(crate) key: String,
    /// Tells another message under the same identity from the same one.
    pub(crate) digest: Digest,
    /// Whether it is put aside.
    pub(crate) aside: Option<Aside>,
}

/// How much of a message the store is asked to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// All, as what it is.
    AsItCame,
    /// Its names, and what is in it as bytes.
    Bytes,
    /// All of it as bytes, under a name that anything takes.
    Bare,
}

impl Form {
    /// What is tried after it.
    pub(crate) const fn lesser(self) -> Option<Self> {
        match self {
            Self::AsItCame => Some(Self::Bytes),
            Self::Bytes => Some(Self::Bare),
            Self::Bare => None,
        }
    }
}

/// Sorts a delivery to the intake of that name.
pub(crate) fn sort(intake: &str, wanted: &BTreeSet<String>, received: &Received) -> Sorted {
    match &received.content {
        Content::Event(envelope) | Content::Foreign(envelope) => {
            sort_event(intake, wanted, envelope)
        }
        Content::Faulty(faulty) => sort_faulty(intake, received, faulty),
    }
}

fn sort_event(intake: &str, wanted: &BTreeSet<String>, envelope: &Envelope) -> Sorted {
    let sorted = Sorted {
        key: key_of(envelope),
        digest: digest_of(envelope.payload.as_bytes()),
        envelope: envelope.clone(),
        aside: None,
    };
    if wanted.contains(&envelope.message_type) {
        return sorted;
    }
    let wrong = format!("no subscription takes the type {:?}", envelope.message_type);
    sorted.put_aside(intake, Aside::Unwanted, &wrong)
}

fn sort_faulty(intake: &str, received: &Received, faulty: &Faulty) -> Sorted {
    let digest = digest_of(&faulty.body);
    let coordinates = &received.coordinates;
    // Where the broker has no places, what comes again is the same by what is in it.
    let id = coordinates.place.clone().unwrap_or_else(|| hex(&digest));
    let payload = Payload::Binary(faulty.body.clone());
    let aside = Aside::Unreadable;
    let mut envelope = Envelope::new(
        id,
        intake,
        &coordinates.topic,
        aside.type_of(intake),
        payload,
    );
    if envelope.aggregate_id.is_empty() {
        envelope.aggregate_id.clone_from(&envelope.id);
    }
    envelope.source = Some(coordinates.log.clone());
    let wrong = faulty.fault.to_string();
    envelope.attributes.insert(WRONG.to_owned(), wrong);
    Sorted {
        key: key_of(&envelope),
        digest,
        envelope,
        aside: Some(aside),
    }
}

impl Sorted {
    /// The same message as something to put aside. What it was known by stays.
    pub(crate) fn put_aside(self, intake: &str, aside: Aside, wrong: &str) -> Self {
        let original = &self.envelope;
        // Whatever can be read can be written; what cannot is kept as it came.
        let (payload, aside) = match to_structured(original, None) {
            Ok(text) => (Payload::Json(text.into()), aside),
            Err(_) => (original.payload.clone(), Aside::Unreadable),
        };
        let id = match aside {
            // Of a second message under one id.
            Aside::Conflicting => format!("{}#{}", original.id, hex(&self.digest)),
            Aside::Unwanted | Aside::Unreadable => id_aside(original),
        };
        let mut envelope =
            Envelope::new(id, intake, original.key(), aside.type_of(intake), payload);
        envelope.source.clone_from(&original.source);
        envelope.operation_id = Some(original.operation().to_owned());
        envelope
            .attributes
            .insert(WRONG.to_owned(), wrong.to_owned());
        Self {
            envelope,
            aside: Some(aside),
            ..self
        }
    }

    /// What it is known by as a message of its own, where its identity is another message's.
    pub(crate) fn conflicting(self, intake: &str) -> Self {
        let wrong = "another message of this source and type came under its id before";
        let mut sorted = self.put_aside(intake, Aside::Conflicting, wrong);
        sorted.key = key_of(&sorted.envelope);
        sorted
    }

    /// The same in another form, because of what the store said of the one before.
    pub(crate) fn in_form(&self, form: Form, intake: &str, why: &str) -> Self {
        match form {
            Form::AsItCame => self.clone(),
            Form::Bytes => self.clone().refused(intake, why),
            Form::Bare => self.clone().bare(intake, why),
        }
    }

    /// As bytes that the store was not able to take for what they are.
    fn refused(mut self, intake: &str, why: &str) -> Self {
        let aside = Aside::Unreadable;
        let envelope = &mut self.envelope;
        if self.aside.is_none() {
            envelope.operation_id = Some(envelope.operation().to_owned());
            envelope.id = id_aside(envelope);
        }
        envelope.message_type = aside.type_of(intake);
        envelope.payload = Payload::Binary(envelope.payload.as_bytes().into());
        envelope.attributes = [(WRONG.to_owned(), why.to_owned())].into();
        self.aside = Some(aside);
        self
    }

    /// With nothing of its own but its bytes: its names and times may be what is refused.
    fn bare(self, intake: &str, why: &str) -> Self {
        let bytes = match to_structured(&self.envelope, None) {
            Ok(text) => text.into_bytes(),
            Err(_) => self.envelope.payload.as_bytes().to_vec(),
        };
        let (aside, key) = (Aside::Unreadable, hex(&digest_of(self.key.as_bytes())));
        let payload = Payload::Binary(bytes.into());
        let mut envelope = Envelope::new(&key, intake, intake, aside.type_of(intake), payload);
        envelope.attributes.insert(WRONG.to_owned(), why.to_owned());
        Self {
            envelope,
            key,
            aside: Some(aside),
            ..self
        }
    }
}

/// Messages of several types may have one id; put aside they have one type.
fn id_aside(original: &Envelope) -> String {
    format!("{}#{}", original.id, original.message_type)
}

fn key_of(envelope: &Envelope) -> String {
    let source = envelope.source.as_deref().unwrap_or_default();
    let (message_type, id) = (&envelope.message_type, &envelope.id);
    format!("{source}{SEPARATOR}{message_type}{SEPARATOR}{id}")
}

fn hex(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use onceward_core::broker::{Coordinates, Tag};
    use onceward_core::cloudevents::{from_binary, from_structured};

    use super::*;

    fn received(content: Content, place: Option<&str>) -> Received {
        Received {
            tag: Tag(1),
            coordinates: Coordinates::new("rabbitmq", "orders", "eu", place.map(Into::into)),
            delivery_count: None,
            bytes: 1,
            content,
        }
    }

    fn event(id: &str, message_type: &str, payload: &str) -> Content {
        let payload = Payload::Json(payload.into());
        let mut envelope = Envelope::new(id, "order", "o-1", message_type, payload);
        envelope.source = Some("/shop".into());
        Content::Event(Box::new(envelope))
    }

    fn wanted() -> BTreeSet<String> {
        ["order.accepted".to_owned()].into()
    }

    fn sorted(content: Content) -> Sorted {
        sort("orders", &wanted(), &received(content, None))
    }

    #[test]
    fn what_is_wanted_stays_as_it_came() {
        let one = sorted(event("m-1", "order.accepted", "{\"a\": 1}"));
        assert_eq!(one.aside, None);
        assert_eq!(one.envelope.id, "m-1");
        assert_eq!(one.key, "/shop\u{1f}order.accepted\u{1f}m-1");
        let again = sorted(event("m-1", "order.accepted", "{\"a\": 1}"));
        assert_eq!((&again.key, again.digest), (&one.key, one.digest));
        let other = sorted(event("m-1", "order.accepted", "{\"a\": 2}"));
        assert_eq!(other.key, one.key);
        assert_ne!(other.digest, one.digest);
    }

    #[test]
    fn what_nobody_takes_can_be_brought_back_whole() {
        let unwanted = sorted(event("m-1", "order.shipped", "{\"a\": 1}"));
        assert_eq!(unwanted.aside, Some(Aside::Unwanted));
        let kept = &unwanted.envelope;
        assert_eq!(kept.message_type, "intake.orders.unwanted");
        assert_eq!(Aside::of_type(&kept.message_type), Some(Aside::Unwanted));
        assert_eq!((kept.id.as_str(), kept.key()), ("m-1#order.shipped", "o-1"));
        assert_eq!(kept.operation(), "m-1");
        assert!(kept.attributes[WRONG].contains("order.shipped"));
        let original = from_structured(kept.payload.as_bytes()).unwrap();
        let Content::Event(came) = event("m-1", "order.shipped", "{\"a\": 1}") else {
            unreachable!()
        };
        assert_eq!(original, *came);
        // It is known by what it came as.
        assert_eq!(unwanted.key, "/shop\u{1f}order.shipped\u{1f}m-1");
    }

    #[test]
    fn what_is_no_event_is_kept_as_it_came() {
        let fault = from_binary([("ce-id", b"\xff".as_slice())], b"").unwrap_err();
        let faulty = |body: &[u8], place| {
            let content = Faulty::content(fault.clone(), body);
            sort("orders", &wanted(), &received(content, place))
        };
        let one = faulty(b"bytes", None);
        assert_eq!(one.aside, Some(Aside::Unreadable));
        assert_eq!(
            one.envelope.payload,
            Payload::Binary(b"bytes".as_slice().into())
        );
        assert_eq!(one.envelope.attributes[WRONG], fault.to_string());
        assert_eq!(faulty(b"bytes", None).key, one.key);
        assert_ne!(faulty(b"other", None).key, one.key);
        // A place is an identity.
        assert_eq!(faulty(b"bytes", Some("7")).envelope.id, "7");
    }

    #[test]
    fn of_two_messages_under_one_id_the_second_is_one_of_its_own() {
        let one = sorted(event("m-1", "order.accepted", "1")).conflicting("orders");
        let other = sorted(event("m-1", "order.accepted", "2")).conflicting("orders");
        assert_eq!(one.aside, Some(Aside::Conflicting));
        assert_ne!(one.envelope.id, other.envelope.id);
        assert_ne!(one.key, other.key);
        assert!(one.envelope.id.starts_with("m-1#"));
    }

    #[test]
    fn what_the_store_refuses_is_kept_as_bytes() {
        let refused = sorted(event("m-1", "order.accepted", "{\"a\": 1}"));
        let refused = refused.refused("orders", "a bad value");
        assert_eq!(refused.envelope.message_type, "intake.orders.unreadable");
        assert_eq!(refused.envelope.payload.as_bytes(), b"{\"a\": 1}");
        assert!(matches!(refused.envelope.payload, Payload::Binary(_)));
        assert_eq!(refused.key, "/shop\u{1f}order.accepted\u{1f}m-1");
    }

    #[test]
    fn what_is_left_in_the_end_has_no_names_of_its_own_and_is_whole() {
        let Content::Event(mut came) = event("m-1", "order.accepted", "1") else {
            unreachable!()
        };
        came.operation_id = Some("op".into());
        came.attributes.insert("note".into(), "n".into());
        let one = sorted(Content::Event(came.clone()));
        let bare = one.in_form(Form::Bare, "orders", "a bad value");
        let kept = &bare.envelope;
        assert_eq!(kept.source, None);
        assert_eq!(kept.id, bare.key);
        assert_eq!((kept.key(), &kept.operation_id), ("orders", &None));
        assert_eq!(kept.attributes[WRONG], "a bad value");
        assert_eq!(kept.message_type, "intake.orders.unreadable");
        assert_eq!(from_structured(kept.payload.as_bytes()).unwrap(), *came);
        // It is known when it comes again, and is not another.
        let again = one.in_form(Form::Bare, "orders", "another reason");
        assert_eq!((&again.key, again.digest), (&bare.key, bare.digest));
        let other = sorted(event("m-2", "order.accepted", "1"));
        assert_ne!(other.in_form(Form::Bare, "orders", "").key, bare.key);
    }
}
