//! Named places at which a process may die: the torture kills itself there.
//!
//! Without the feature `failure-points` nothing of this is compiled; with it, a place costs one
//! look at whether anybody listens.

#[cfg(feature = "failure-points")]
use std::sync::OnceLock;

#[cfg(feature = "failure-points")]
type Listener = Box<dyn Fn(&'static str) + Send + Sync>;

#[cfg(feature = "failure-points")]
static LISTENER: OnceLock<Listener> = OnceLock::new();

/// Calls `listener` with the name of each failure point that this process comes by. The first one
/// stays; returns whether it is this one.
#[cfg(feature = "failure-points")]
pub fn on_failure_point(listener: impl Fn(&'static str) + Send + Sync + 'static) -> bool {
    LISTENER.set(Box::new(listener)).is_ok()
}

#[cfg(feature = "failure-points")]
pub(crate) fn reached(point: &'static str) {
    if let Some(listener) = LISTENER.get() {
        listener(point);
    }
}

/// A named place at which a process may die.
macro_rules! failure_point {
    ($name:literal) => {
        #[cfg(feature = "failure-points")]
        $crate::failure_points::reached($name);
    };
}

pub(crate) use failure_point;
