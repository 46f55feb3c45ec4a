//! Retention, now and then: old rows go, room for new ones is made ahead.

use std::time::Duration;

use onceward_core::store::{Retention, Store, StoreErrorKind};

use crate::failure_points::failure_point;

/// Time between rounds.
const EVERY: Duration = Duration::from_secs(60);
/// Time between rounds when this role may not tidy up.
const WHEN_DENIED: Duration = Duration::from_secs(3_600);
/// Rounds in a row while there is more to do.
const ROUNDS_MAX: u32 = 200;

/// Tidies up until it is dropped.
pub(super) async fn keep_up<S: Store>(store: S, retention: Retention) {
    loop {
        let mut pause = EVERY;
        for _ in 0..ROUNDS_MAX {
            failure_point!("before-upkeep");
            let tidied = store.tidy(retention).await;
            failure_point!("after-upkeep");
            match tidied {
                Ok(report) if report.has_more => {}
                Ok(_) => break,
                Err(error) => {
                    if error.kind() == StoreErrorKind::Denied {
                        pause = WHEN_DENIED;
                    }
                    tracing::warn!(
                        error = &error as &(dyn std::error::Error + 'static),
                        "could not tidy up; old messages stay and no room is made ahead"
                    );
                    break;
                }
            }
        }
        tokio::time::sleep(pause).await;
    }
}
