//! What a producer's own type says about itself.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Where a message type's key goes: into the aggregate id (`subject`) or into `partitionkey`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum KeyField {
    /// The key is the aggregate id.
    #[default]
    Subject,
    /// The key is the partition key.
    PartitionKey,
}

/// A typed message. Usually derived:
///
/// ```ignore
/// #[derive(Serialize, Deserialize, Message)]
/// #[message(type = "order.accepted", version = 1, key = order_id, operation = checkout_id)]
/// struct OrderAccepted { order_id: String, checkout_id: String }
/// ```
pub trait Message: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The CloudEvents `type`.
    const TYPE: &'static str;
    /// Version of the payload's schema.
    const VERSION: i32;
    /// The aggregate type; by default the part of `TYPE` before the first dot.
    const AGGREGATE_TYPE: &'static str;

    /// The ordering key: the aggregate id.
    fn key(&self) -> String;

    /// The business operation this message belongs to; `None` means the message's own id.
    fn operation(&self) -> Option<String> {
        None
    }

    /// The partition key, where order follows something else than the aggregate.
    fn partition_key(&self) -> Option<String> {
        None
    }

    /// Version of the aggregate after what happened, where the producer keeps one.
    fn aggregate_version(&self) -> Option<i64> {
        None
    }
}
