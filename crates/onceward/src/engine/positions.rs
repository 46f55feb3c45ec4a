//! Keeping how far a subscription has come.

use onceward_core::store::{Lease, SavePosition, Span, Store};
use tokio::sync::watch;

use super::again::{Pause, warn};
use crate::failure_points::failure_point;

/// Writes the newest positions, one write at a time. One that cannot be written is tried again,
/// because no newer one may come: until then its messages would pass for unfinished. Lanes that are
/// handed back bring their position along.
pub(super) async fn save_positions<S: Store>(
    store: S,
    lease: Lease,
    subscription: String,
    mut positions: watch::Receiver<Vec<Span>>,
) {
    while positions.changed().await.is_ok() {
        let mut pause = Pause::default();
        loop {
            let spans = positions.borrow_and_update().clone();
            let request = SavePosition {
                member: &lease.member,
                subscription: &subscription,
                spans: &spans,
            };
            failure_point!("before-position");
            let Err(error) = store.save_position(request).await else {
                failure_point!("after-position");
                break;
            };
            warn(&error, "a position was not saved");
            if !error.kind().is_passing() || positions.has_changed().is_err() {
                break;
            }
            pause.pass().await;
        }
    }
}
