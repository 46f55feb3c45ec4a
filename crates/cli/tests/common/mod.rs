//! What the tests of the program share: a place to run it in, a receiver, Python, raw HTTP.

#![allow(dead_code, reason = "no test uses all of it")]

pub(crate) mod place;
pub(crate) mod python;
pub(crate) mod raw;
pub(crate) mod receiver;

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
#[allow(unused_imports, reason = "no test uses all of it")]
pub(crate) use on_both_stores;
