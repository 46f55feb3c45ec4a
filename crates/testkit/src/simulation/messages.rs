//! What the simulated service sends.

use onceward_core::{Envelope, Message, Payload};
use serde::{Deserialize, Serialize};

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
    ($name:ident, $type:literal) => {
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub(super) struct $name(pub(super) Body);

        impl Message for $name {
            const TYPE: &'static str = $type;
            const VERSION: i32 = 1;
            const AGGREGATE_TYPE: &'static str = "order";

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

message!(Placed, "order.placed");
message!(Pay, "order.pay");
message!(Shipped, "order.shipped");

/// The body of a payload.
pub(super) fn body_of(payload: &Payload) -> Option<Body> {
    match payload {
        Payload::Json(text) => serde_json::from_str(text).ok(),
        Payload::Binary(_) => None,
    }
}

/// An envelope around a body.
pub(super) fn envelope(message_type: &str, id: String, body: &Body) -> Envelope {
    let text = serde_json::json!({ "number": body.number, "copy": body.copy, "key": body.key });
    let payload = Payload::Json(text.to_string().into());
    let mut envelope = Envelope::new(id, "order", body.key.clone(), message_type, payload);
    // One key has one tenant. Keys are few, tenants fewer; some messages name none.
    let tenant = body.key.bytes().map(u32::from).sum::<u32>() % 4;
    if tenant > 0 {
        let named = ("tenant".to_owned(), format!("t{tenant}"));
        envelope.attributes.extend([named]);
    }
    envelope
}
