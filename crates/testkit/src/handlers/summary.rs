//! What became of each message.

use std::collections::BTreeMap;
use std::fmt;

use onceward::core::Row;
use onceward::core::store::{Log, MessageState, OperationQuery, ReadPage, Status, StoreError};
use onceward::core::{Ending, Position};

use super::record::Line;

/// Rows of a page while the log is read.
const PAGE_ROWS: u32 = 500;
/// Most of a message's trail that is shown.
const TRAIL_SHOWN_MAX: usize = 24;
/// Bytes of a page while the log is read.
const PAGE_BYTES: u64 = 8 << 20;

/// How a message stands in a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// Its effect is there.
    Done,
    /// The handler refused it for a business reason, which is an outcome.
    Rejected,
    /// Its time was over before it could be done.
    Expired,
    /// A later one had been done, or took its place.
    Superseded,
    /// A later message of its key that waited with it was handled in its place.
    Merged,
    /// It was given up because its turn came late.
    Shed,
    /// It was handed on, at least once, or its subscription promises no more than that.
    Delivered,
    /// It is a case.
    Quarantined {
        /// Why.
        reason: String,
    },
    /// Somebody ended its case without it.
    Resolved {
        /// `discarded`, `waived` or `corrected`.
        how: String,
    },
    /// It waits: for its time, behind its key, or for a person.
    Deferred {
        /// `retry`, `held`, `running`, `operator` or `gap`.
        kind: String,
        /// Code of the last failure, if there was one.
        reason: Option<String>,
    },
    /// Nothing has become of it yet.
    Waiting,
}

impl End {
    fn of(state: &MessageState) -> Self {
        match state {
            MessageState::Pending => Self::Waiting,
            MessageState::Deferred { kind, failure, .. } => Self::Deferred {
                kind: kind.clone(),
                reason: failure.as_ref().map(|failure| failure.code.clone()),
            },
            MessageState::Finished { ending, .. } => match ending {
                Ending::Done => Self::Done,
                Ending::Rejected => Self::Rejected,
                Ending::Expired => Self::Expired,
                Ending::Superseded => Self::Superseded,
                Ending::Merged => Self::Merged,
                Ending::Shed => Self::Shed,
            },
            MessageState::Delivered => Self::Delivered,
            MessageState::Quarantined { reason, .. } => Self::Quarantined {
                reason: reason.clone(),
            },
            MessageState::Resolved { resolution, .. } => Self::Resolved {
                how: resolution.as_str().to_owned(),
            },
        }
    }

    /// Whether something is left to be done that no person has to do.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::Deferred { kind, .. } => kind != "operator",
            end => *end == Self::Waiting,
        }
    }

    /// How far from done: of several copies of a message the worst is told.
    const fn distance(&self) -> u8 {
        match self {
            Self::Done
            | Self::Rejected
            | Self::Expired
            | Self::Superseded
            | Self::Merged
            | Self::Shed
            | Self::Delivered => 0,
            Self::Quarantined { .. } | Self::Resolved { .. } => 1,
            Self::Deferred { .. } => 2,
            Self::Waiting => 3,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => write!(f, "done"),
            Self::Rejected => write!(f, "rejected"),
            Self::Expired => write!(f, "expired"),
            Self::Superseded => write!(f, "superseded"),
            Self::Merged => write!(f, "merged"),
            Self::Shed => write!(f, "shed"),
            Self::Delivered => write!(f, "delivered"),
            Self::Quarantined { reason } => write!(f, "quarantined: {reason}"),
            Self::Resolved { how } => f.write_str(how),
            Self::Deferred { kind, reason } => match reason {
                Some(reason) => write!(f, "deferred ({kind}): {reason}"),
                None => write!(f, "deferred ({kind})"),
            },
            Self::Waiting => write!(f, "waiting"),
        }
    }
}

/// One message in one subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageSummary {
    /// Message id.
    pub id: String,
    /// Message type.
    pub message_type: String,
    /// Ordering key.
    pub key: String,
    /// Subscription.
    pub subscription: String,
    /// How it stands.
    pub end: End,
    /// Attempts that it has taken, as its retry policy counts them.
    pub attempts: u32,
    /// How often its handler, call or delivery was run. More than its attempts where a neighbour in
    /// its batch failed, a commit did not happen, or a process died.
    pub runs: u32,
    /// What happened, in order, in words.
    pub trail: Vec<String>,
}

/// What became of each message in each subscription that takes it, in the order of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The messages.
    pub messages: Vec<MessageSummary>,
    /// How much time was passed on the stage's clock so far, in milliseconds.
    pub passed_ms: u64,
}

impl Summary {
    /// The messages of a subscription.
    pub fn of<'s>(&'s self, subscription: &'s str) -> impl Iterator<Item = &'s MessageSummary> {
        let messages = self.messages.iter();
        messages.filter(move |message| message.subscription == subscription)
    }

    /// The only message that a subscription has taken.
    ///
    /// # Panics
    /// When it has taken none or more than one.
    #[must_use]
    pub fn only(&self, subscription: &str) -> &MessageSummary {
        let messages = self.messages.iter();
        let mut messages = messages.filter(|message| message.subscription == subscription);
        match (messages.next(), messages.next()) {
            (Some(message), None) => message,
            _ => panic!("subscription {subscription} has not taken exactly one message:\n{self}"),
        }
    }

    /// Asserts that messages were taken and that each is done, delivered, or rejected.
    ///
    /// # Panics
    /// With the whole table, when one is not.
    pub fn assert_all_done(&self) {
        assert!(
            !self.messages.is_empty(),
            "no subscription of this stage takes a message that was appended"
        );
        let left = self.messages.iter();
        let left = left.filter(|message| message.end.distance() > 0).count();
        assert!(left == 0, "{left} message(s) did not end well:\n{self}");
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for message in &self.messages {
            let MessageSummary {
                id,
                message_type,
                key,
                subscription,
                end,
                attempts,
                runs,
                trail,
            } = message;
            writeln!(
                f,
                "  {subscription}: {message_type} of key {key} ({id}): {end}, {attempts} attempt(s), \
                 {runs} run(s)"
            )?;
            if !trail.is_empty() {
                let left_out = trail.len().saturating_sub(TRAIL_SHOWN_MAX);
                let more = match left_out {
                    0 => String::new(),
                    many => format!("({many} before that), "),
                };
                writeln!(f, "      {more}{}", trail[left_out..].join(", "))?;
            }
        }
        Ok(())
    }
}

/// Reads the whole log.
async fn rows<S: Log>(store: &S) -> Result<Vec<Row>, StoreError> {
    let head = store.head().await?;
    let mut from = Position::origin(head.era);
    let mut rows = Vec::new();
    loop {
        let request = ReadPage {
            from: &from,
            rows_max: PAGE_ROWS,
            bytes_max: PAGE_BYTES,
        };
        let page = store.read(request).await?;
        let is_end = page.rows.is_empty() && page.next.is_boundary();
        rows.extend(page.rows);
        if is_end {
            return Ok(rows);
        }
        from = page.next;
    }
}

/// Asks a store what became of everything in its log.
pub(super) async fn summarise<S: Log + Status>(
    store: &S,
    subscriptions: &[String],
    lines: &[Line],
    passed_ms: u64,
) -> Result<Summary, StoreError> {
    let mut messages: Vec<MessageSummary> = Vec::new();
    let mut known = BTreeMap::new();
    for row in rows(store).await? {
        let operation = row.envelope.operation();
        let query = OperationQuery {
            operation,
            rows_max: 10_000,
        };
        if !known.contains_key(operation) {
            known.insert(operation.to_owned(), store.operation(query).await?);
        }
        let statuses = known[operation].iter();
        for status in statuses.filter(|status| status.id == row.envelope.id) {
            let of_stage = status.subscriptions.iter();
            for (name, state) in of_stage.filter(|(name, _)| subscriptions.contains(name)) {
                let end = End::of(state);
                let is_this =
                    |m: &&mut MessageSummary| m.id == status.id && m.subscription == *name;
                if let Some(earlier) = messages.iter_mut().find(is_this) {
                    if end.distance() > earlier.end.distance() {
                        earlier.end = end;
                    }
                    continue;
                }
                let own = lines
                    .iter()
                    .filter(|line| line.message_id == status.id && line.subscription == *name);
                let runs = own.clone().filter_map(|line| line.attempt);
                messages.push(MessageSummary {
                    id: status.id.clone(),
                    message_type: status.message_type.clone(),
                    key: row.envelope.key().to_owned(),
                    subscription: name.clone(),
                    end,
                    attempts: runs.clone().max().unwrap_or(0),
                    runs: u32::try_from(runs.count()).unwrap_or(u32::MAX),
                    trail: own.map(|line| line.text.clone()).collect(),
                });
            }
        }
    }
    Ok(Summary {
        messages,
        passed_ms,
    })
}
