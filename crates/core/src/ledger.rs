//! What makes a second delivery recognisable, and what is kept of an effect.

use serde::{Deserialize, Serialize};

use crate::envelope::Row;
use crate::timestamp::Timestamp;
use crate::version::Aggregate;

/// What identifies an effect within a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Identity {
    /// The message id: two messages are two effects. Default for events.
    Message,
    /// The business operation: two messages of one operation are one effect. Default for commands.
    Operation,
    /// The log's sequence: cheapest index, but two rows with one id are two effects. Local log only.
    Seq,
}

/// The ledger's key inside one subscription.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LedgerKey {
    /// Source of the message.
    pub source: String,
    /// Message type.
    pub message_type: String,
    /// Message id, operation, or the sequence in decimal.
    pub identity: String,
    /// 0 but for a deliberate rerun.
    pub generation: u32,
    /// When the log took the message; carried by every delivery. Chooses the partition.
    pub recorded_at: Timestamp,
}

impl LedgerKey {
    /// The key of a row under an identity.
    #[must_use]
    pub fn of(row: &Row, identity: Identity) -> Self {
        let envelope = &row.envelope;
        Self {
            source: envelope.source.clone().unwrap_or_default(),
            message_type: envelope.message_type.clone(),
            identity: match identity {
                Identity::Message => row.effect_id().to_owned(),
                Identity::Operation => envelope.operation().to_owned(),
                Identity::Seq => row.seq.to_string(),
            },
            generation: 0,
            recorded_at: row.recorded_at,
        }
    }
}

/// First 16 bytes of the SHA-256 of a payload: the same identity with another payload is refused.
pub type Digest = [u8; 16];

/// How an effect ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The handler succeeded.
    Done,
    /// The handler gave a final business refusal.
    Rejected,
    /// Its time was over before it could be done.
    Expired,
    /// A later version of its aggregate had been applied.
    Superseded,
    /// A later message of its key that waited with it was handled in its place.
    Merged,
    /// It was given up because its turn came late.
    Shed,
}

impl Ending {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Done,
        Self::Rejected,
        Self::Expired,
        Self::Superseded,
        Self::Merged,
        Self::Shed,
    ];

    /// Those of messages that were given up by a policy.
    pub const DROPPED: [Self; 3] = [Self::Expired, Self::Merged, Self::Shed];

    /// The name used in tables and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Superseded => "superseded",
            Self::Merged => "merged",
            Self::Shed => "shed",
        }
    }

    /// The ending of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ending| ending.as_str() == name)
    }
}

/// One row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The key inside the subscription.
    pub key: LedgerKey,
    /// Digest of the payload; `None` where a receiver outside wrote the row without one.
    pub digest: Option<Digest>,
    /// How it ended.
    pub ending: Ending,
    /// The handler's result as JSON text, returned again on redelivery.
    pub result: Option<Box<str>>,
    /// Version of the aggregate, where the message carried one.
    pub aggregate_version: Option<i64>,
    /// Whose version it is, where the subscription checks versions: the row is then found by
    /// [`last_versions`](crate::store::Versions::last_versions). It is written and never read back.
    pub aggregate: Option<Aggregate>,
}
