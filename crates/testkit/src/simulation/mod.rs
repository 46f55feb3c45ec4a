//! The engine under simulation: its own code over a store in memory, in simulated processes whose
//! time, randomness and misfortunes come from one number, checked by code that knows nothing of it.
//!
//! [`run`] runs a [`Setup`]; equal setups give equal runs. `scripts/simulate` runs many.

mod campaigns;
mod checkers;
mod conduct;
mod defect;
mod fault;
mod handlers;
mod history;
mod machine;
mod messages;
mod operator;
mod process;
mod producers;
mod setup;
mod shrink;
mod store;
mod variants;
mod world;

pub use checkers::{EndState, Violation};
pub use conduct::{Conduct, Trouble};
pub use defect::Defect;
pub use fault::Fault;
pub use history::{Event, Outcome, Step, What};
pub use machine::{Report, run};
pub use setup::{Role, Setup};
pub use shrink::shrink;
pub use variants::Variant;
