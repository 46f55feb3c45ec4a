//! The brokers that this process takes messages in from: those that some subscription names as its
//! source.

use std::collections::BTreeSet;

use onceward::intake::{Intake, IntakeOptions};

use crate::brokers;
use crate::config::Config;
use crate::error::Error;

/// One intake for each. Subscriptions that a service works on itself are taken in for as well.
pub(super) fn intakes(config: &Config) -> Result<Vec<Intake>, Error> {
    let subscriptions = config.contract.subscriptions.values();
    let named: BTreeSet<&str> = subscriptions.flat_map(|s| s.brokers()).collect();
    let mut intakes = Vec::new();
    for name in named {
        let Some(broker) = config.brokers.get(name) else {
            continue;
        };
        let Some(intake) = &broker.intake else {
            continue;
        };
        let subscriber = brokers::subscriber(name, broker, intake)?;
        let mut options = IntakeOptions::default();
        options.batch_messages_max = intake.prefetch;
        options.batch_bytes_max = intake.prefetch_bytes;
        options.ahead_max = intake.ahead_max;
        options.memory_ms = intake.redelivery_window_ms;
        intakes.push(Intake::new(name, subscriber, options));
    }
    Ok(intakes)
}
