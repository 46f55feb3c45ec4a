//! Upkeep: a bounded round each minute, and at once while there is more to do.

use std::time::Duration;

use onceward_console::overview::OldCases;
use onceward_core::store::{Cases, Retention, Upkeep};
use tokio_util::sync::CancellationToken;

use crate::commands::old_cases;
use crate::output::now;

/// Pause between rounds that found nothing more.
const EVERY: Duration = Duration::from_secs(60);

/// Tidies until told to close.
pub(super) async fn run<S: Upkeep + Cases>(
    store: S,
    retention: Retention,
    cases_ms: u64,
    closing: CancellationToken,
) {
    let mut told = None;
    loop {
        let pause = round(&store, retention).await;
        tell(&store, cases_ms, &mut told).await;
        tokio::select! {
            () = closing.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// A word in the log when there are cases beyond their retention, and again when it is another one
/// that is the oldest.
async fn tell<S: Cases>(store: &S, cases_ms: u64, told: &mut Option<i64>) {
    // What cannot be asked now is asked again in the next round.
    let Ok(found) = OldCases::find(store, cases_ms, now()).await else {
        return;
    };
    let oldest = found.map(|old| old.oldest_case_id);
    if let Some(old) = found.filter(|_| oldest != *told) {
        tracing::warn!(case = old.oldest_case_id, "{}", old_cases::words(&old));
    }
    *told = oldest;
}

/// One round; returns how long to wait for the next.
async fn round<S: Upkeep>(store: &S, retention: Retention) -> Duration {
    match store.tidy(retention).await {
        Ok(report) => {
            tracing::debug!(
                log_removed = report.log_removed,
                ledger_removed = report.ledger_removed,
                records_removed = report.records_removed,
                "tidied"
            );
            if report.has_more {
                Duration::ZERO
            } else {
                EVERY
            }
        }
        Err(error) => {
            tracing::warn!(%error, "upkeep failed; it is tried again in a minute");
            EVERY
        }
    }
}
