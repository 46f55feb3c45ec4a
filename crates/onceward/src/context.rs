//! What a handler that only touches the database may do.

use std::sync::Arc;

use onceward_core::store::{Effects, Store};
use onceward_core::{Envelope, Failure, Message, Row};

use crate::outbox::envelope_of;

/// A handler's view of its effect transaction.
///
/// It deliberately offers no way to call out: handlers that take it are coalesced, and their code
/// may run twice, with only the database work of the failed run undone.
pub struct Context<S: Store> {
    pub(crate) store: S,
    pub(crate) tx: S::Tx,
    pub(crate) outgoing: Vec<Envelope>,
    row: Arc<Row>,
    attempt: u32,
}

impl<S: Store> Context<S> {
    pub(crate) fn new(store: S, tx: S::Tx, row: Arc<Row>) -> Self {
        Self {
            store,
            tx,
            outgoing: Vec::new(),
            row,
            attempt: 1,
        }
    }

    pub(crate) fn turn_to(&mut self, row: Arc<Row>, attempt: u32) {
        self.row = row;
        self.attempt = attempt;
    }

    /// The connection inside the effect transaction. The engine commits; do not end the
    /// transaction.
    pub fn tx(&mut self) -> &mut <S as onceward_core::store::Append>::Connection {
        Effects::connection(&self.store, &mut self.tx)
    }

    /// Appends a message that commits with the effect. Causation is the message being handled,
    /// correlation and trace go on from it.
    ///
    /// # Errors
    /// When the message does not serialise or its key is empty: permanent.
    pub fn append<M: Message>(&mut self, message: &M) -> Result<(), Failure> {
        let envelope = envelope_of(message).map_err(|error| {
            Failure::permanent("append_refused", "a follow-up message cannot be appended")
                .with_source(error)
        })?;
        self.append_envelope(envelope);
        Ok(())
    }

    /// Appends an envelope that commits with the effect; attributes already set stay.
    pub fn append_envelope(&mut self, mut envelope: Envelope) {
        let cause = &self.row.envelope;
        let mut inherit = |name: &str, value: Option<&String>| {
            if let Some(value) = value {
                envelope
                    .attributes
                    .entry(name.to_owned())
                    .or_insert_with(|| value.clone());
            }
        };
        inherit("causationid", Some(&cause.id));
        let correlation = cause.attributes.get("correlationid");
        inherit("correlationid", correlation.or(Some(&cause.id)));
        inherit("traceparent", cause.attributes.get("traceparent"));
        inherit("tracestate", cause.attributes.get("tracestate"));
        self.outgoing.push(envelope);
    }

    /// The message being handled.
    #[must_use]
    pub fn message(&self) -> &Row {
        &self.row
    }

    /// 1 for the first attempt; deferrals that were nobody's fault do not count.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }
}

impl<S: Store> std::fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("message", &self.row.envelope.id)
            .field("attempt", &self.attempt)
            .field("outgoing", &self.outgoing.len())
            .finish_non_exhaustive()
    }
}
