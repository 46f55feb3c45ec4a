//! The messages of the example.

use onceward::Message;
use serde::{Deserialize, Serialize};

/// Where a parcel goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Address {
    /// Two capital letters, as in ISO 3166-1.
    pub country: String,
    /// City, with its postcode where there is one.
    pub city: String,
    /// Street and number.
    pub street: String,
}

/// An order was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Message)]
#[message(type = "order.accepted", version = 1, key = order_id, operation = checkout_id)]
pub struct OrderAccepted {
    /// Given out by the order service.
    pub order_id: String,
    /// The client's own name for what it wants: the business operation.
    pub checkout_id: String,
    /// Where to.
    pub address: Address,
}

/// A shipment was booked with the carrier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Message)]
#[message(type = "shipment.created", version = 1, key = order_id, operation = checkout_id)]
pub struct ShipmentCreated {
    /// The order.
    pub order_id: String,
    /// The business operation.
    pub checkout_id: String,
    /// The shipment.
    pub shipment_id: String,
    /// The carrier's own number.
    pub booking: String,
}

/// An order will never be shipped. A final answer, not an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Message)]
#[message(type = "fulfillment.rejected", version = 1, key = order_id, operation = checkout_id)]
pub struct FulfillmentRejected {
    /// The order.
    pub order_id: String,
    /// The business operation.
    pub checkout_id: String,
    /// Why, as a short stable word.
    pub reason: String,
}
