//! Runs the real program, on SQLite and on PostgreSQL, including commands that must fail.

#![allow(
    clippy::unwrap_used,
    reason = "a test panics where something is not as it should be"
)]

mod daemon;
mod doctor;
mod place;
mod receiver;
mod refusals;
mod send;
mod setup;

/// One test on each kind of store.
macro_rules! on_both_stores {
    ($($(#[$meta:meta])* async fn $name:ident($place:ident) $body:block)+) => {
        $(
            mod $name {
                use super::*;

                async fn body($place: crate::place::Place) $body

                $(#[$meta])*
                #[tokio::test(flavor = "multi_thread")]
                async fn sqlite() {
                    body(crate::place::Place::sqlite()).await;
                }

                $(#[$meta])*
                #[tokio::test(flavor = "multi_thread")]
                async fn postgres() {
                    body(crate::place::Place::postgres().await).await;
                }
            }
        )+
    };
}
pub(crate) use on_both_stores;
