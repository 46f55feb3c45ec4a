//! The carrier: somebody else's service, simulated, with a record of its own.
//!
//! It books once per operation. Sometimes it does the work and answers late or not at all, and
//! sometimes it does nothing and does not say so either: its client cannot tell which.

mod client;
mod mood;
mod record;
mod server;

pub use client::{Booking, CarrierAddress, CarrierAnswer, CarrierClient};
pub use mood::{Mood, Moods};
pub use record::{Line, Record, RecordError, read_record, read_whole_lines};
pub use server::{CarrierOptions, router};

/// Countries that the carrier delivers to.
pub const COUNTRIES: [&str; 12] = [
    "AT", "BE", "CH", "CZ", "DE", "DK", "ES", "FR", "IT", "LU", "NL", "PL",
];

/// The reason of a rejection that an address brings.
pub const UNSUPPORTED_ADDRESS: &str = "unsupported_address";
