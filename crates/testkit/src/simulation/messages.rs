//! What the simulated service sends.

use onceward_core::{Envelope, Message, Payload};
use serde::{Deserialize, Serialize};

use super::setup::Setup;

/// A message that says which one it is.
pub(super) trait Numbered: Message {
    /// The message's number: decides what handlers do with it.
    fn number(&self) -> u64;
    /// Names one append.
    fn copy(&self) -> u64;
}

/// What every message holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Body {
    pub(super) number: u64,
    pub(super) copy: u64,
    pub(super) key: String,
}

macro_rules! message {
    ($name:ident, $type:literal, $aggregate:literal) => {
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub(super) struct $name(pub(super) Body);

        impl Message for $name {
            const TYPE: &'static str = $type;
            const VERSION: i32 = 1;
            const AGGREGATE_TYPE: &'static str = $aggregate;

            fn key(&self) -> String {
                self.0.key.clone()
            }
        }

        impl Numbered for $name {
            fn number(&self) -> u64 {
                self.0.number
            }

            fn copy(&self) -> u64 {
                self.0.copy
            }
        }
    };
}

message!(Placed, "order.placed", "order");
message!(Rushed, "order.rushed", "rush");
message!(Idled, "order.idled", "idle");
message!(Pay, "order.pay", "order");
message!(Shipped, "order.shipped", "order");

/// Ids of follow-ups begin so; the sequence of the message that they follow comes after.
pub(super) const SHIPPED: &str = "shipped-";

/// The type of what is sent about a key: where there are classes a key has one, like its tenant.
pub(super) fn type_of(setup: &Setup, key: u32) -> &'static str {
    match key % 3 {
        1 if setup.classes => Rushed::TYPE,
        2 if setup.classes => Idled::TYPE,
        _ => Placed::TYPE,
    }
}

/// The least window that there is, in bytes.
pub(super) const WINDOW_BYTES: u64 = 1 << 16;

/// What makes messages so large that a few fill such a window.
const FILLING: usize = WINDOW_BYTES as usize / 6;

/// The body of a payload.
pub(super) fn body_of(payload: &Payload) -> Option<Body> {
    match payload {
        Payload::Json(text) => serde_json::from_str(text).ok(),
        Payload::Binary(_) => None,
    }
}

/// An envelope around a body.
pub(super) fn envelope(setup: &Setup, message_type: &str, id: String, body: &Body) -> Envelope {
    let mut text = serde_json::json!({ "number": body.number, "copy": body.copy, "key": body.key });
    if setup.is_tight {
        text["filling"] = ".".repeat(FILLING).into();
    }
    let payload = Payload::Json(text.to_string().into());
    // Messages of one aggregate have one class.
    let aggregate = match message_type {
        Rushed::TYPE => Rushed::AGGREGATE_TYPE,
        Idled::TYPE => Idled::AGGREGATE_TYPE,
        _ => Placed::AGGREGATE_TYPE,
    };
    let mut envelope = Envelope::new(id, aggregate, body.key.clone(), message_type, payload);
    // One key has one tenant. Keys are few, tenants fewer; some messages name none.
    let tenant = body.key.bytes().map(u32::from).sum::<u32>() % 4;
    if tenant > 0 {
        let named = ("tenant".to_owned(), format!("t{tenant}"));
        envelope.attributes.extend([named]);
    }
    envelope
}
