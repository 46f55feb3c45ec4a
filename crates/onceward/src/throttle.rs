//! Whether a producer's work can still be done in time, asked before its transaction.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use onceward_core::Message;
use onceward_core::contract::Contract;
use onceward_core::store::{BacklogQuery, Status, StoreError, StoreErrorKind};
use onceward_core::throttle::{
    CURRENT_FOR_MS, Gauge, Judged, Load, Sight, Throttle as Policy, Verdict, promised_ms,
};
use tokio::time::Instant;

/// How often what waits is looked at where nothing else is said, in milliseconds.
pub const THROTTLE_EVERY_MS: u64 = 2_000;

/// Where counting what waits of a subscription stops.
const COUNT_MAX: u64 = 100_000;
/// Looking takes at most one part in so many of the time.
const SHARE: u32 = 10;
/// Looks after which a subscription that takes nothing of what is asked about is looked at again:
/// another process may have declared other types for it.
const OTHERS_EVERY: u32 = 15;

/// Says whether new messages of a type can still be finished in time, from what one look every few
/// seconds has seen. Asking costs a look at memory and never waits. Clones share the looks, which
/// end with the last of them.
///
/// ```no_run
/// # async fn example(store: onceward::sqlite::Sqlite, contract: onceward::core::contract::Contract)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// let throttle = onceward::Throttle::watch(store, &contract, onceward::THROTTLE_EVERY_MS);
/// throttle.check("order.accepted")?; // before the transaction
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Throttle {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// What was promised of the types that are refused when it cannot be kept, in milliseconds.
    promised_ms: BTreeMap<String, u64>,
    seen: RwLock<Option<Seen>>,
}

/// What the last look that succeeded came to.
#[derive(Debug)]
struct Seen {
    at: Instant,
    judged: BTreeMap<String, Judged>,
}

/// New messages of a type are refused: the work that waits would break what was promised of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{message_type} messages would not be finished in time; try again in {retry_after_ms} ms, and \
     a little later by chance"
)]
pub struct Throttled {
    /// The type.
    pub message_type: String,
    /// When to try again, in milliseconds from now.
    pub retry_after_ms: u64,
}

impl Throttle {
    /// Looks at a store every so many milliseconds, for the types of a contract that say so. Only
    /// message types and their promises are taken from it: which subscriptions take them is known in
    /// the store, so that a process that only produces need not know of them. Needs a running tokio.
    pub fn watch<S: Status>(store: S, contract: &Contract, every_ms: u64) -> Self {
        let refusing = contract
            .messages
            .iter()
            .filter(|(_, message)| message.throttle == Policy::Refuse);
        let promised_ms: BTreeMap<String, u64> = refusing
            .filter_map(|(name, message)| Some((name.clone(), promised_ms(&message.promise)?)))
            .collect();
        let shared = Arc::new(Shared {
            promised_ms,
            seen: RwLock::default(),
        });
        if !shared.promised_ms.is_empty() {
            let looks = Looks {
                store,
                gauges: BTreeMap::new(),
                others: BTreeMap::new(),
                promised_ms: shared.promised_ms.clone(),
                judged: BTreeMap::new(),
            };
            let every = Duration::from_millis(every_ms.max(1));
            tokio::spawn(looks.go_on(Arc::downgrade(&shared), every));
        }
        Self { shared }
    }

    /// Whether new messages of a type may be appended. Where nobody could look of late, they may.
    ///
    /// # Errors
    /// When they would not be finished in time.
    pub fn check(&self, message_type: &str) -> Result<(), Throttled> {
        if !self.shared.promised_ms.contains_key(message_type) {
            return Ok(());
        }
        let verdict = self.seen(|judged| judged.get(message_type).map(|judged| judged.verdict));
        match verdict.flatten() {
            Some(Verdict::Refuse { retry_after_ms }) => Err(Throttled {
                message_type: message_type.to_owned(),
                retry_after_ms,
            }),
            Some(Verdict::Open) | None => Ok(()),
        }
    }

    /// All types that may be refused, as the last look judged them, with what is in front of a new
    /// message. Empty where nobody could look of late.
    #[must_use]
    pub fn judged(&self) -> Vec<Judged> {
        let judged = self.seen(|judged| judged.values().cloned().collect());
        judged.unwrap_or_default()
    }

    /// What the last look came to, unless it was too long ago.
    fn seen<T>(&self, of: impl FnOnce(&BTreeMap<String, Judged>) -> T) -> Option<T> {
        let seen = self.shared.seen.read();
        let seen = seen.unwrap_or_else(PoisonError::into_inner);
        let is_current = |seen: &&Seen| seen.at.elapsed() < Duration::from_millis(CURRENT_FOR_MS);
        let current = seen.as_ref().filter(is_current);
        current.map(|seen| of(&seen.judged))
    }

    /// The same for a typed message.
    ///
    /// # Errors
    /// When messages of its type would not be finished in time.
    pub fn check_for<M: Message>(&self) -> Result<(), Throttled> {
        self.check(M::TYPE)
    }
}

/// The looks behind a throttle.
struct Looks<S> {
    store: S,
    gauges: BTreeMap<String, Gauge>,
    /// Subscriptions that take none of the types, with how many looks leave them out still.
    others: BTreeMap<String, u32>,
    promised_ms: BTreeMap<String, u64>,
    judged: BTreeMap<String, Judged>,
}

impl<S: Status> Looks<S> {
    /// Looks until nobody asks any more.
    async fn go_on(mut self, shared: Weak<Shared>, every: Duration) {
        let mut was_seen = true;
        loop {
            let begun = Instant::now();
            let looked = self.look().await;
            let Some(shared) = shared.upgrade() else {
                return;
            };
            let is_seen = looked.is_ok();
            match looked {
                Ok(()) => {
                    let seen = Seen {
                        at: Instant::now(),
                        judged: self.judged.clone(),
                    };
                    let mut place = shared.seen.write().unwrap_or_else(PoisonError::into_inner);
                    *place = Some(seen);
                }
                // What was seen before grows old, and then nothing is refused.
                Err(error) if was_seen => tracing::warn!(
                    error = &error as &(dyn std::error::Error + 'static),
                    "what waits cannot be looked at; as long as that lasts nothing is refused"
                ),
                Err(_) => {}
            }
            was_seen = is_seen;
            drop(shared);
            tokio::time::sleep(every.max(begun.elapsed() * SHARE)).await;
        }
    }

    async fn look(&mut self) -> Result<(), StoreError> {
        let names = self.store.subscriptions().await?;
        self.gauges.retain(|name, _| names.contains(name));
        self.others.retain(|name, _| names.contains(name));
        let mut loads: BTreeMap<String, Vec<(String, Load)>> = BTreeMap::new();
        for name in names {
            if let Some(left) = self.others.get_mut(&name).filter(|left| **left > 0) {
                *left -= 1;
                continue;
            }
            let gauge = self.gauges.entry(name.clone()).or_default();
            let query = BacklogQuery {
                before: gauge.looked_at(),
                ..BacklogQuery::new(&name, COUNT_MAX)
            };
            let backlog = match self.store.backlog(query).await {
                Ok(backlog) => backlog,
                // It was removed meanwhile.
                Err(error) if error.kind() == StoreErrorKind::Refused => continue,
                Err(error) => return Err(error),
            };
            let load = gauge.see(Sight::of(&backlog));
            let types = backlog.types.into_iter();
            let its: Vec<String> = types.filter(|t| self.promised_ms.contains_key(t)).collect();
            if its.is_empty() {
                self.gauges.remove(&name);
                self.others.insert(name, OTHERS_EVERY);
                continue;
            }
            self.others.remove(&name);
            for message_type in its {
                let its = loads.entry(message_type).or_default();
                its.push((name.clone(), load));
            }
        }
        for (message_type, promised_ms) in &self.promised_ms {
            let before = self.judged.get(message_type).map(|judged| judged.verdict);
            let before = before.unwrap_or_default();
            let loads = loads.remove(message_type).unwrap_or_default();
            let judged = Judged::of(message_type.clone(), *promised_ms, before, loads);
            report(message_type, before, judged.verdict);
            self.judged.insert(message_type.clone(), judged);
        }
        Ok(())
    }
}

/// Says once that a type is refused, and once that it is not any more.
fn report(message_type: &str, before: Verdict, verdict: Verdict) {
    match (before, verdict) {
        (Verdict::Open, Verdict::Refuse { retry_after_ms }) => tracing::warn!(
            message_type,
            retry_after_ms,
            "new messages are refused: what waits would break their promise"
        ),
        (Verdict::Refuse { .. }, Verdict::Open) => {
            tracing::info!(message_type, "new messages are accepted again");
        }
        _ => {}
    }
}
