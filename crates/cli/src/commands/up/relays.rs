//! The subscriptions that this process works on: those with a broker.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceward::Subscription;
use onceward::relay::{Relay, RelayOptions};
use onceward_core::broker::{KeyOrder, Publisher};
use onceward_core::contract::{Order, SubscriptionContract};
use onceward_core::store::Store;

use crate::brokers;
use crate::config::{Config, RelayConfig};
use crate::error::{Code, Error};

/// One subscription for each relay; relays to one broker share its connection.
pub(super) fn subscriptions<S: Store>(config: &Config) -> Result<Vec<Subscription<S>>, Error> {
    let mut publishers: BTreeMap<&str, Arc<dyn Publisher>> = BTreeMap::new();
    let mut subscriptions = Vec::new();
    for (name, relay) in &config.relays {
        let Some(contract) = config.contract.subscriptions.get(name) else {
            continue;
        };
        let Some(broker) = config.brokers.get(&relay.broker) else {
            continue;
        };
        let publisher = match publishers.get(relay.broker.as_str()) {
            Some(publisher) => Arc::clone(publisher),
            None => {
                let publisher = brokers::publisher(&relay.broker, broker)?;
                publishers.insert(&relay.broker, Arc::clone(&publisher));
                publisher
            }
        };
        check(contract, relay, &*publisher)?;
        let mut subscription = subscription(contract, relay, publisher);
        for name in &contract.types {
            let rules = config.payloads.get(name).cloned().unwrap_or_default();
            subscription = subscription.sensitivity(name, rules.sensitivity);
        }
        subscriptions.push(subscription);
    }
    Ok(subscriptions)
}

/// What the contract promises and the broker would not keep.
fn check(
    contract: &SubscriptionContract,
    relay: &RelayConfig,
    publisher: &dyn Publisher,
) -> Result<(), Error> {
    if contract.order == Order::Key && publisher.capabilities().order == KeyOrder::None {
        let message = format!(
            "subscription {} keeps the order of its keys, which broker {} does not: say order = \
             \"none\", or take another broker",
            contract.name, relay.broker
        );
        return Err(Error::new(Code::Broker, message));
    }
    Ok(())
}

fn subscription<S: Store>(
    contract: &SubscriptionContract,
    relay: &RelayConfig,
    publisher: Arc<dyn Publisher>,
) -> Subscription<S> {
    let mut options = RelayOptions::default();
    options.topic = relay.topic.clone();
    options.timeout_ms = relay.timeout_ms;
    Subscription::new(&contract.name, contract.semantics)
        .deliver(&contract.types, Relay::new(publisher, options))
        .contract(contract.clone())
}
