//! What an error means for the message at hand.

use onceward_core::failure::{Class, Failure};
use onceward_core::sensitivity::Sensitivity;
use onceward_core::store::{Append, StoreError, StoreErrorKind};
use onceward_core::{Envelope, FailureRecord};

/// Longest error text that is kept, in bytes.
const FAILURE_TEXT_BYTES_MAX: usize = 4_096;
/// Longest error text in which values of the payload are looked for, in bytes.
const SCRUBBED_BYTES_MAX: usize = 65_536;

/// What is kept of a failure: bounded, and without what is sensitive of its message's payload.
pub(super) fn record_of(
    failure: &Failure,
    envelope: &Envelope,
    sensitivity: &Sensitivity,
) -> FailureRecord {
    // Cut first as well: a text may be of any length. A value that the last cut would leave a part of
    // is gone by then.
    let record = failure.record().cut(SCRUBBED_BYTES_MAX);
    let record = record.scrubbed(envelope, sensitivity);
    record.cut(FAILURE_TEXT_BYTES_MAX)
}

/// What to do after something went wrong around a message.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The message failed.
    Message(Failure),
    /// The database ended the transaction because a handler left it idle: the one at hand, or one
    /// before it in the same transaction.
    Ended(Failure),
    /// The store is in trouble, nobody's fault: the same again later.
    Store(StoreErrorKind),
    /// The lease is over.
    Fenced,
}

/// Judges a handler's failure: errors of the database are classified, everything else stays.
pub(super) fn of_failure<S: Append>(store: &S, failure: Failure) -> Verdict {
    if failure.is_classified() {
        return Verdict::Message(failure);
    }
    let kind = failure.source_ref().and_then(|source| {
        // A store's own error may come up through a handler as well.
        source
            .downcast_ref::<StoreError>()
            .map(StoreError::kind)
            .or_else(|| store.classify(source))
    });
    match kind {
        None => Verdict::Message(failure),
        Some(StoreErrorKind::Fenced) => Verdict::Fenced,
        Some(StoreErrorKind::Overstayed) => Verdict::Ended(transaction_idle()),
        Some(kind) if kind.is_passing() => Verdict::Store(kind),
        Some(StoreErrorKind::Refused) => {
            Verdict::Message(failure.classified(Class::Permanent, "database_refused"))
        }
        Some(StoreErrorKind::Denied) => {
            Verdict::Message(failure.classified(Class::Operator, "database_denied"))
        }
        Some(_) => Verdict::Message(failure.classified(Class::Transient, "database_error")),
    }
}

/// Judges an error of the store around the handler.
pub(super) fn of_store(error: StoreError) -> Verdict {
    match error.kind() {
        StoreErrorKind::Fenced => Verdict::Fenced,
        StoreErrorKind::Overstayed => Verdict::Ended(transaction_idle()),
        kind if kind.is_passing() => Verdict::Store(kind),
        StoreErrorKind::Refused => Verdict::Message(
            Failure::permanent(
                "record_refused",
                "the database refused the record of the effect",
            )
            .with_source(error),
        ),
        _ => Verdict::Message(
            Failure::transient(
                "record_failed",
                "the record of the effect could not be written",
            )
            .with_source(error),
        ),
    }
}

fn transaction_idle() -> Failure {
    Failure::transient(
        "transaction_idle",
        "the handler kept its transaction idle past the lease and was ended",
    )
}
