//! The subscriptions that this process works on: those with a push.

use onceward::Subscription;
use onceward::push::{PushDeliverer, PushOptions, SigningSecrets};
use onceward_core::contract::SubscriptionContract;
use onceward_core::store::Store;

use crate::config::{Config, PushConfig};
use crate::error::{Code, Error};

/// One subscription for each push.
pub(super) fn subscriptions<S: Store>(config: &Config) -> Result<Vec<Subscription<S>>, Error> {
    let contracts = &config.contract.subscriptions;
    let pushes = config.pushes.iter();
    pushes
        .filter_map(|(name, push)| Some((contracts.get(name)?, push)))
        .map(|(contract, push)| {
            let mut subscription = subscription(contract, push)?;
            for name in &contract.types {
                let rules = config.payloads.get(name).cloned().unwrap_or_default();
                subscription = subscription.sensitivity(name, rules.sensitivity);
            }
            Ok(subscription)
        })
        .collect()
}

fn subscription<S: Store>(
    contract: &SubscriptionContract,
    push: &PushConfig,
) -> Result<Subscription<S>, Error> {
    let name = &contract.name;
    let secret = push.secret.read()?;
    let secrets = SigningSecrets::parse(secret.reveal()).map_err(|error| {
        let message = format!("the secret of push {name} ({}) cannot be used", push.secret);
        Error::new(Code::Secret, message).with_source(error)
    })?;
    let mut options = PushOptions::new(&push.url, secrets);
    options.timeout_ms = push.timeout_ms;
    options.connect_timeout_ms = options.connect_timeout_ms.min(push.timeout_ms);
    options.probe.clone_from(&push.probe);
    let deliverer = PushDeliverer::new(options).map_err(|error| {
        Error::new(Code::Engine, format!("could not set up the push of {name}")).with_source(error)
    })?;
    Ok(Subscription::new(name, contract.semantics)
        .push(&contract.types, deliverer)
        .contract(contract.clone()))
}
