//! The worked example: orders are accepted once, a carrier is asked once, and everybody can see
//! how each order ended.
//!
//! ```text
//!  client ──POST /orders──▶ order service ──┐ one commit: order row, outbox row, answer
//!                                           ▼
//!                                         the log
//!                                           │ OrderAccepted
//!                                           ▼
//!  carrier ◀──POST /bookings── fulfilment (a call: no transaction is open meanwhile)
//!     own record               │ one commit: shipment or rejection, follow-up message, ledger
//!                              ▼
//!                            order book (coalesced: many messages share a commit)
//! ```
//!
//! | module | what is in it |
//! |---|---|
//! | [`message`] | the messages |
//! | [`request`] | what a client sends, and what is wrong with it |
//! | [`shop`] | the business's own tables, on SQLite and PostgreSQL |
//! | [`service`] | the order service |
//! | [`fulfilment`] | the consumer: the call to the carrier, and the order book |
//! | [`carrier`] | the carrier: a simulator with its own record, and its client |
//! | [`between`] | the two services apart, with a broker between them |
//! | [`in_hand`] | how a process shows from outside that it has unfinished work |
//! | [`part`] | each of the three as a process of its own |

pub mod between;
pub mod carrier;
pub mod fulfilment;
pub mod in_hand;
pub mod message;
pub mod part;
pub mod request;
pub mod service;
pub mod shop;
