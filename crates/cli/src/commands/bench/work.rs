//! What the bench works on.

use onceward::Message;
use serde::{Deserialize, Serialize};

/// A message about as large as those of the usual comparisons: some 90 bytes of JSON.
#[derive(Clone, Debug, Serialize, Deserialize, Message)]
#[message(type = "bench.order", version = 1, key = order, operation = operation)]
pub(super) struct Order {
    pub(super) order: String,
    pub(super) operation: String,
    pub(super) address: String,
    #[serde(default)]
    pub(super) fails: bool,
    #[serde(default)]
    pub(super) waits: bool,
}

/// `count` orders, each with its own key, `failing` of a hundred of which fail for good.
pub(super) fn orders(count: u32, failing: u32) -> Vec<Order> {
    let order = |i: u32| Order {
        order: format!("order-{i:08}"),
        operation: format!("checkout-{i:08}-{:08x}", i.wrapping_mul(2_654_435_761)),
        address: format!("{} Long Acre", i % 1000),
        fails: failing > 0 && i % 100 < failing,
        waits: false,
    };
    (0..count).map(order).collect()
}
