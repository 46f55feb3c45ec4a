//! `onceward broker`: looking at brokers.

pub(crate) mod server;

use clap::{Args, Subcommand};
use onceward_core::broker::{Check, Finding};
use serde_json::json;

use crate::brokers;
use crate::cli::Global;
use crate::config::{BrokerKind, Config, suggestion};
use crate::error::{Code, Error};
use crate::output::Output;

/// Verbs of `broker`.
#[derive(Debug, Subcommand)]
pub enum BrokerCommand {
    /// Connect, and look whether publishing and taking in would work; nothing is published or taken
    Check(CheckArgs),
}

/// Options of `broker check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The broker, as in [broker.NAME]
    name: String,
}

/// Runs a verb.
///
/// # Errors
/// When there is no such broker, this build does not have it, or something is wrong with it.
pub async fn run(global: &Global, output: Output, command: &BrokerCommand) -> Result<(), Error> {
    let BrokerCommand::Check(args) = command;
    let config = Config::load(&global.config)?;
    let name = &args.name;
    let Some(broker) = config.brokers.get(name) else {
        let hint = suggestion(name, config.brokers.keys().map(String::as_str));
        let message = format!("{} has no [broker.{name}]{hint}", config.path.display());
        return Err(Error::new(Code::NotFound, message));
    };
    let publisher = brokers::publisher(name, broker)?;
    // Topics that depend on the message are known when there is one.
    let relays = config.relays.values().filter(|relay| relay.broker == *name);
    let topics = relays.filter_map(|relay| relay.topic.fixed().map(str::to_owned));
    let topics: Vec<String> = topics.collect();
    let check = Check {
        topics: &topics,
        timeout_ms: broker.connect_timeout_ms,
    };
    let is_published_to = match &broker.kind {
        BrokerKind::RabbitMq { exchange, .. } => exchange.is_some(),
        BrokerKind::Nats { .. } => true,
    };
    let mut findings = Vec::new();
    if is_published_to {
        findings = publisher.check(check).await;
    }
    publisher.close().await;
    if let Some(intake) = &broker.intake {
        let subscriber = brokers::subscriber(name, broker, intake)?;
        for finding in subscriber.check(check).await {
            // Both connect to the same place.
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
    }
    show(output, name, &findings)?;
    match findings.iter().filter(|finding| !finding.is_good()).count() {
        0 => Ok(()),
        bad => {
            let message = format!("{bad} of {} things need a hand", findings.len());
            Err(Error::new(Code::BrokerCheck, message))
        }
    }
}

fn show(output: Output, name: &str, findings: &[Finding]) -> Result<(), Error> {
    if output.is_json() {
        let findings: Vec<_> = findings
            .iter()
            .map(|finding| {
                json!({
                    "what": finding.what,
                    "is_good": finding.is_good(),
                    "says": finding.says,
                    "remedy": finding.remedy,
                })
            })
            .collect();
        return output.json(&json!({ "broker": name, "findings": findings }));
    }
    for finding in findings {
        let mark = match finding.is_good() {
            true => output.good("ok"),
            false => output.bad("no"),
        };
        output.line(&format!("{mark}  {}: {}", finding.what, finding.says))?;
        if let Some(remedy) = &finding.remedy {
            output.line(&format!("    {remedy}"))?;
        }
    }
    Ok(())
}
