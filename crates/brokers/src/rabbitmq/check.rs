//! What is looked at before anything is sent or received.

use lapin::ExchangeKind;
use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use onceward_core::broker::{Check, Finding};

use super::connect::{Connector, short};

pub(super) async fn publishing(connector: &Connector, _: Check<'_>) -> Vec<Finding> {
    let (mut findings, channel) = match begin(connector).await {
        Ok(begun) => begun,
        Err(findings) => return findings,
    };
    let exchange = &connector.options.exchange;
    if exchange.is_empty() {
        let says = "takes the topic for the name of a queue";
        findings.push(Finding::good("default exchange", says));
        return findings;
    }
    let what = format!("exchange {exchange}");
    let passive = ExchangeDeclareOptions {
        passive: true,
        ..ExchangeDeclareOptions::default()
    };
    let Ok(name) = short(exchange) else {
        findings.push(Finding::bad(
            what,
            "has too long a name",
            "255 bytes are the most",
        ));
        return findings;
    };
    let looking =
        channel.exchange_declare(name, ExchangeKind::Topic, passive, FieldTable::default());
    findings.push(
        match tokio::time::timeout(connector.timeout(), looking).await {
            // Whether a queue is bound cannot be asked over AMQP; a message that no queue takes comes
            // back.
            Ok(Ok(())) => Finding::good(what, "is there"),
            Ok(Err(error)) => Finding::bad(
                what,
                format!("cannot be used: {error}"),
                "make it, let it be declared, or permit it to this user",
            ),
            Err(_) => Finding::bad(what, "no answer", "look at the server's alarms"),
        },
    );
    findings
}

pub(super) async fn receiving(connector: &Connector, _: Check<'_>) -> Vec<Finding> {
    let (mut findings, channel) = match begin(connector).await {
        Ok(begun) => begun,
        Err(findings) => return findings,
    };
    let queue = &connector.options.queue;
    let what = format!("queue {queue}");
    let passive = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    let Ok(name) = short(queue) else {
        findings.push(Finding::bad(
            what,
            "has too long a name",
            "255 bytes are the most",
        ));
        return findings;
    };
    let looking = channel.queue_declare(name, passive, FieldTable::default());
    findings.push(
        match tokio::time::timeout(connector.timeout(), looking).await {
            Ok(Ok(found)) => {
                let says = format!(
                    "is there, {} messages ready, {} receivers",
                    found.message_count(),
                    found.consumer_count()
                );
                Finding::good(what, says)
            }
            Ok(Err(error)) => Finding::bad(
                what,
                format!("cannot be used: {error}"),
                "make it, let it be declared, or permit it to this user",
            ),
            Err(_) => Finding::bad(what, "no answer", "look at the server's alarms"),
        },
    );
    findings
}

async fn begin(connector: &Connector) -> Result<(Vec<Finding>, lapin::Channel), Vec<Finding>> {
    let what = format!("connection to {}", connector.address());
    match connector.channel().await {
        Ok(channel) => Ok((vec![Finding::good(what, "stands")], channel)),
        Err(failure) => {
            let remedy = "start the server, or correct address, credentials, virtual host and \
                          certificates";
            Err(vec![Finding::bad(what, failure.to_string(), remedy)])
        }
    }
}
