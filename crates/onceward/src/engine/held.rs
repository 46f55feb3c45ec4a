//! Says when too much waits behind a key, or for too long. Nothing is dropped for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::hold::Limit;
use onceward_core::store::{HeldQuery, Store};
use tokio::sync::watch;

use super::EngineState;
use super::runner::Runtime;

/// Keys of a subscription that are told of one by one.
const KEYS_MAX: u32 = 20;

/// Looks after one subscription until it is dropped. In a fleet the owner of its first lane does.
pub(super) async fn watch<S: Store>(
    store: S,
    runtime: Arc<Runtime<S>>,
    every: Duration,
    report: watch::Sender<EngineState>,
) {
    let name = &runtime.contract.name;
    let limits = runtime.contract.hold;
    let mut told: BTreeMap<String, Vec<Limit>> = BTreeMap::new();
    loop {
        tokio::time::sleep(every).await;
        let owns_first = |state: &EngineState| {
            let lanes = state.lanes.get(name);
            lanes.is_some_and(|lanes| lanes.contains(&0))
        };
        if !owns_first(&report.borrow()) {
            told.clear();
            continue;
        }
        let query = HeldQuery {
            subscription: name,
            beyond: Some(limits),
            keys_max: KEYS_MAX,
        };
        // Trouble of the store is told by those who work.
        let Ok(held) = store.longest_held(query).await else {
            continue;
        };
        let mut beyond = BTreeMap::new();
        for key in held {
            let passed = limits.passed(key.depth, key.age_ms);
            if told.get(&key.key) != Some(&passed) {
                tracing::warn!(
                    subscription = name.as_str(),
                    key = key.key,
                    depth = key.depth,
                    age_ms = key.age_ms,
                    behind = key.behind,
                    case_id = key.case_id,
                    "more is held behind a key than its limits allow; nothing is lost, it waits"
                );
            }
            beyond.insert(key.key, passed);
        }
        for key in told.keys().filter(|key| !beyond.contains_key(*key)) {
            tracing::info!(
                subscription = name.as_str(),
                key,
                "what is held behind a key is within its limits again"
            );
        }
        told = beyond;
        report.send_if_modified(|state| {
            let keys: Vec<String> = told.keys().cloned().collect();
            let changed = state.held_beyond.get(name).is_none_or(|old| *old != keys);
            state.held_beyond.insert(name.clone(), keys);
            changed
        });
    }
}
