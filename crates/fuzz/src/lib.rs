//! What must hold for any input of every parser that meets the outside.
//!
//! Each target is a plain function from bytes that panics when a property does not hold. Two things
//! run them: the package `fuzz` at the project's root, under libFuzzer (`scripts/fuzz`), and this
//! crate's tests, which replay the kept corpora with seeded mutations on a stable toolchain.
//!
//! | target | what it reads |
//! |---|---|
//! | `cloudevents_binary` | headers, a blank line, a body |
//! | `cloudevents_structured` | one event as JSON |
//! | `cloudevents_batch` | a JSON array of events |
//! | `envelope` | the fields of a message, one on a line, then the payload |
//! | `position` | a snapshot's text, or a position's |
//! | `timestamp` | a time's text, or its microseconds |
//! | `retry_after` | the header `Retry-After` |
//! | `signature` | signing secrets, a message id and a body |
//! | `http` | a request to the HTTP API, as it stands on a wire |
//! | `config` | `onceward.toml` |
//! | `store_url` | the address of a store or of a target |
//! | `send_lines` | what `onceward send` reads |

mod cloudevents;
mod config;
mod envelope;
mod http;
pub mod mutate;
mod place;
mod request;
mod send_lines;
mod text;
mod url;

mod position;

/// A property of a parser: panics when it does not hold for an input.
pub type Target = fn(&[u8]);

/// All targets by name. Each has a folder of this name under `fuzz/corpus`.
pub const TARGETS: [(&str, Target); 12] = [
    ("cloudevents_binary", cloudevents::binary),
    ("cloudevents_structured", cloudevents::structured),
    ("cloudevents_batch", cloudevents::batch),
    ("envelope", envelope::round_trip),
    ("position", position::read),
    ("timestamp", text::timestamp),
    ("retry_after", text::retry_after),
    ("signature", text::signature),
    ("http", http::ask),
    ("config", config::read),
    ("store_url", url::read),
    ("send_lines", send_lines::read),
];

/// The target with this name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.map(|(_, target)| *target)
}
