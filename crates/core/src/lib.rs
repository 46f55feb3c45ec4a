//! The pure core of Onceward: what a message is, how failure is counted, how far a reader has
//! come, and what a store must be able to do.
//!
//! Nothing here does I/O, reads a clock or draws a random number: time and chance are parameters.
//!
//! | module | what is in it |
//! |---|---|
//! | [`cloudevents`] | events on the wire |
//! | [`contract`] | message types, promises, subscriptions |
//! | [`envelope`] | a message as stored and carried |
//! | [`message`] | what a producer's type says about itself |
//! | [`failure`] | failure classes and what is kept of a failure |
//! | [`retry`] | the budget and its backoff |
//! | [`case`] | what people may do with a case |
//! | [`sensitivity`] | what of a payload may be shown |
//! | [`campaign`] | a replay, paced, watched and stoppable |
//! | [`disposition`] | what becomes of a message that failed |
//! | [`position`] | reading by what became visible between two snapshots |
//! | [`lane`] | slots, lanes, balancing |
//! | [`group`] | what goes on by itself within a lane: priorities and tenants |
//! | [`ledger`] | identities and entries of the ledger |
//! | [`dispatcher`] | order, windows, deferral and handover as a state machine |
//! | [`breaker`] | when a dependency counts as away |
//! | [`concurrency`] | how much a dependency can take at once |
//! | [`rate`] | how many messages may start per second in a fleet |
//! | [`coalesce`] | how large a batch is, and how a failed one is taken apart |
//! | [`version`] | versions of aggregates: behind, next, over a gap |
//! | [`expiry`] | when work has become useless, and what follows |
//! | [`merge`] | of messages that wait together, which one is handled |
//! | [`shed`] | work of low value that is given up under load |
//! | [`throttle`] | whether new work can still be done in time |
//! | [`hold`] | how much may wait behind a key before somebody is told |
//! | [`store`] | the seams to a database |
//! | [`broker`] | the seams to a broker |

pub mod breaker;
pub mod broker;
pub mod campaign;
pub mod case;
pub mod cloudevents;
pub mod coalesce;
pub mod concurrency;
pub mod contract;
pub mod dispatcher;
pub mod disposition;
pub mod envelope;
pub mod expiry;
pub mod failure;
pub mod group;
pub mod hold;
pub mod lane;
pub mod ledger;
pub mod merge;
pub mod message;
pub mod position;
pub mod rate;
pub mod retry;
pub mod sensitivity;
pub mod shed;
mod stand;
pub mod store;
pub mod throttle;
mod timestamp;
pub mod version;

pub use envelope::{Envelope, Payload, Row};
pub use failure::{Class, Failure, FailureRecord};
pub use ledger::{Digest, Ending, Identity, LedgerEntry, LedgerKey};
pub use message::{KeyField, Message};
pub use position::{Position, Snapshot, Within};
pub use retry::{Exhausted, RetryPolicy, Spent};
pub use stand::Stand;
pub use timestamp::{ParseTimestampError, Timestamp};
