//! Upkeep: a bounded round each minute, and at once while there is more to do.

use std::time::Duration;

use onceward_core::store::{Retention, Upkeep};
use tokio_util::sync::CancellationToken;

/// Pause between rounds that found nothing more.
const EVERY: Duration = Duration::from_secs(60);

/// Tidies until told to close.
pub(super) async fn run<S: Upkeep>(store: S, retention: Retention, closing: CancellationToken) {
    loop {
        let pause = round(&store, retention).await;
        tokio::select! {
            () = closing.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
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
