//! Real processes on real databases, killed, frozen and cut off, and a checker of what is left.
//!
//! | part | does |
//! |---|---|
//! | `messages` | what is produced, and what each subscription promises |
//! | `processes` | workers with the real engine, producers, the carrier |
//! | `driver` | rounds of faults, then quiet, then a look at everything |
//! | `checker` | compares all records; shares no code with the engine |

pub mod checker;
mod driver;
pub mod messages;
pub mod points;
mod processes;
mod record;
mod tables;
mod trouble;

pub use driver::{Kept, Options, Report, check_kept, run};
pub use processes::carrier::{Asked, Entry};
pub use processes::{Broken, CarrierArgs, LEASE_MS, Part, ProducerArgs, WorkerArgs};
pub use trouble::Trouble;
