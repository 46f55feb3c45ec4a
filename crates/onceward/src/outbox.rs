//! Producing: appending messages in the caller's own transaction, and accepting requests once.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use onceward_core::store::{AcceptRequest, Acceptance, Accepted, Append, StoreError};
use onceward_core::{Envelope, Message, Payload};
use tokio::sync::watch;
use uuid::Uuid;

use crate::digest::digest_of;

/// Rung after a commit that appended; every engine of the process listens.
static DOORBELL: LazyLock<watch::Sender<u64>> = LazyLock::new(|| watch::Sender::new(0));

/// Wakes the engines of this process: something was committed.
fn ring() {
    DOORBELL.send_modify(|rings| *rings = rings.wrapping_add(1));
}

/// The doorbell of this process.
pub(crate) fn bell() -> watch::Sender<u64> {
    DOORBELL.clone()
}

/// How long the answer to an accepted request is kept by default: seven days, in milliseconds.
pub const ACCEPTANCE_MEMORY_MS: u64 = 7 * 86_400_000;

/// Why a message was not appended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The message does not serialise to JSON.
    #[error("the message does not serialise to JSON")]
    Unserialisable(#[source] serde_json::Error),
    /// Its ordering key is empty.
    #[error("the key of a {message_type} message is empty")]
    EmptyKey {
        /// The type.
        message_type: &'static str,
    },
    /// The store refused or could not be reached.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Makes an envelope of a typed message, with a new id (UUID version 7).
///
/// # Errors
/// When it does not serialise or its key is empty.
pub fn envelope_of<M: Message>(message: &M) -> Result<Envelope, AppendError> {
    let text = serde_json::to_string(message).map_err(AppendError::Unserialisable)?;
    let key = message.key();
    if key.is_empty() {
        return Err(AppendError::EmptyKey {
            message_type: M::TYPE,
        });
    }
    let id = Uuid::now_v7().to_string();
    let mut envelope = Envelope::new(
        id,
        M::AGGREGATE_TYPE,
        key,
        M::TYPE,
        Payload::Json(text.into()),
    );
    envelope.operation_id = message.operation();
    envelope.partition_key = message.partition_key();
    envelope.schema_version = Some(M::VERSION);
    envelope.aggregate_version = message.aggregate_version();
    envelope.attributes = BTreeMap::new();
    Ok(envelope)
}

/// The outbox of a store.
///
/// Appending is an insert in the caller's transaction: the message exists exactly if the business
/// change does. It never waits for another open append, and costs no notification.
#[derive(Clone, Debug)]
pub struct Outbox<S> {
    store: S,
}

impl<S: Append> Outbox<S> {
    /// The outbox of this store.
    pub const fn new(store: S) -> Self {
        Self { store }
    }

    /// The store underneath.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// Appends one message and returns its id.
    ///
    /// # Errors
    /// See [`AppendError`]. The caller's transaction is then to be rolled back.
    pub async fn append<M: Message>(
        &self,
        connection: &mut S::Connection,
        message: &M,
    ) -> Result<String, AppendError> {
        let envelope = envelope_of(message)?;
        let id = envelope.id.clone();
        self.store.append(connection, &[envelope]).await?;
        Ok(id)
    }

    /// Appends messages of one type with one statement and returns their ids.
    ///
    /// # Errors
    /// See [`AppendError`].
    pub async fn append_all<M: Message>(
        &self,
        connection: &mut S::Connection,
        messages: &[M],
    ) -> Result<Vec<String>, AppendError> {
        let envelopes: Vec<Envelope> =
            messages.iter().map(envelope_of).collect::<Result<_, _>>()?;
        self.store.append(connection, &envelopes).await?;
        Ok(envelopes.into_iter().map(|envelope| envelope.id).collect())
    }

    /// Appends envelopes as they are.
    ///
    /// # Errors
    /// When the store refuses or cannot be reached.
    pub async fn append_envelopes(
        &self,
        connection: &mut S::Connection,
        envelopes: &[Envelope],
    ) -> Result<(), StoreError> {
        self.store.append(connection, envelopes).await
    }

    /// Wakes engines in this process at once. Call it after the commit; without it they notice
    /// within milliseconds while there is traffic, and within a quarter of a second after silence.
    pub fn ring(&self) {
        ring();
    }
}

impl<S: Acceptance> Outbox<S> {
    /// Claims a request in the caller's transaction: `First` means do the work, then
    /// [`answer`](Self::answer). Keys are scoped by caller.
    ///
    /// # Errors
    /// When the store refuses or cannot be reached.
    pub async fn accept(
        &self,
        connection: &mut S::Connection,
        caller: &str,
        key: &str,
        body: &[u8],
    ) -> Result<Accepted, StoreError> {
        self.store
            .accept(connection, accept_request(caller, key, body))
            .await
    }

    /// Stores the answer (JSON text) beside the work, in the same transaction.
    ///
    /// # Errors
    /// When the store refuses or cannot be reached.
    pub async fn answer(
        &self,
        connection: &mut S::Connection,
        caller: &str,
        key: &str,
        body: &[u8],
        answer: &str,
    ) -> Result<(), StoreError> {
        self.store
            .answer(connection, accept_request(caller, key, body), answer)
            .await
    }
}

fn accept_request<'a>(caller: &'a str, key: &'a str, body: &[u8]) -> AcceptRequest<'a> {
    AcceptRequest {
        caller,
        key,
        digest: digest_of(body),
        memory_ms: ACCEPTANCE_MEMORY_MS,
    }
}
