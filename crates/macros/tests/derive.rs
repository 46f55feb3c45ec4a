//! The derive as a user's crate sees it, through the path override.

use onceward_core::Message as _;
use onceward_macros::Message;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Address {
    id: u64,
}

#[derive(Serialize, Deserialize, Message)]
#[message(
    type = "order.accepted",
    version = 2,
    key = order_id,
    operation = checkout_id,
    partition_key = address.id,
    aggregate_version = revision,
    crate = "onceward_core"
)]
struct OrderAccepted {
    order_id: String,
    checkout_id: u32,
    address: Address,
    revision: u32,
}

#[derive(Serialize, Deserialize, Message)]
#[message(type = "stock_counted", key = r#type, crate = "::onceward_core")]
struct StockCounted {
    r#type: char,
}

#[test]
fn values_come_from_the_fields() {
    let message = OrderAccepted {
        order_id: "ord-731".into(),
        checkout_id: 284,
        address: Address { id: 7 },
        revision: 5,
    };
    assert_eq!(OrderAccepted::TYPE, "order.accepted");
    assert_eq!(OrderAccepted::VERSION, 2);
    assert_eq!(OrderAccepted::AGGREGATE_TYPE, "order");
    assert_eq!(message.key(), "ord-731");
    assert_eq!(message.operation().as_deref(), Some("284"));
    assert_eq!(message.partition_key().as_deref(), Some("7"));
    assert_eq!(message.aggregate_version(), Some(5));
}

#[test]
fn what_is_not_given_has_the_traits_default() {
    let message = StockCounted { r#type: 'x' };
    assert_eq!(StockCounted::AGGREGATE_TYPE, "stock_counted");
    assert_eq!(message.key(), "x");
    assert_eq!(message.operation(), None);
    assert_eq!(message.partition_key(), None);
    assert_eq!(message.aggregate_version(), None);
}
