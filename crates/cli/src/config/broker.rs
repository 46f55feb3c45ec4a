//! `[broker.NAME]`, and what a subscription says of brokers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use onceward::intake::{BATCH_MESSAGES_MOST, IntakeOptions};
use onceward_core::broker::{Layout, Topic};
use onceward_core::contract::OUTBOX;
use url::Url;

use super::fault::FaultCode;
use super::reader::{Placed, Section, suggestion};
use super::{SecretSource, sections};

/// How long a confirmation may take when nothing else is said, in milliseconds.
const TIMEOUT_MS_DEFAULT: u64 = 15_000;

/// How long connecting may take when nothing else is said, in milliseconds.
const CONNECT_TIMEOUT_MS_DEFAULT: u64 = 5_000;

/// A broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerConfig {
    /// Which one, and what only that one has.
    pub kind: BrokerKind,
    /// Where its address is.
    pub url: BrokerUrl,
    /// How events are laid out.
    pub layout: Layout,
    /// Certificates of the authorities that its own is checked against.
    pub ca_file: Option<PathBuf>,
    /// How long a confirmation may take, in milliseconds.
    pub timeout_ms: u64,
    /// How long connecting may take, in milliseconds.
    pub connect_timeout_ms: u64,
    /// How messages are taken in from it, where it says from where.
    pub intake: Option<IntakeConfig>,
}

/// How messages are taken in from a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntakeConfig {
    /// The JetStream consumer, or the queue.
    pub from: String,
    /// What the queue is bound to, where it is made when it is not there.
    pub bindings: Vec<String>,
    /// How long a delivery belongs to whoever has it, where the consumer is made here, in
    /// milliseconds.
    pub ack_wait_ms: Option<u64>,
    /// Most messages that are taken in by one transaction.
    pub prefetch: u32,
    /// Most bytes that are taken in by one transaction.
    pub prefetch_bytes: u64,
    /// How many messages may wait here before the rest waits at the broker.
    pub ahead_max: u64,
    /// For how long a message that comes again is known, in milliseconds.
    pub redelivery_window_ms: u64,
}

/// Which broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokerKind {
    /// NATS JetStream.
    Nats {
        /// The stream.
        stream: String,
        /// Its subjects, where it is to be made when it is not there.
        subjects: Vec<String>,
    },
    /// RabbitMQ.
    RabbitMq {
        /// The exchange; empty for the default one, none where nothing is published.
        exchange: Option<String>,
        /// Whether it, and a queue to take from, are to be made when they are not there.
        declare: bool,
        /// Largest payload in bytes, where it is another than RabbitMQ's own.
        message_bytes_max: Option<u64>,
    },
}

impl BrokerKind {
    /// As it is written in the file, which is also the name of the build's feature.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Nats { .. } => "nats",
            Self::RabbitMq { .. } => "rabbitmq",
        }
    }
}

/// The address of a broker, or where to find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokerUrl {
    /// As it stands in the file; without a password.
    Plain(String),
    /// In a file or an environment variable, because it holds a password.
    Secret(SecretSource),
}

/// A relay: to which broker the messages of a subscription are published, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayConfig {
    /// Name of the broker.
    pub broker: String,
    /// Which topic a message goes to.
    pub topic: Topic,
    /// How long a confirmation may take, in milliseconds.
    pub timeout_ms: u64,
}

/// The brokers by name; none where a section has faults, which are noted.
pub(super) type Brokers = BTreeMap<String, Option<BrokerConfig>>;

/// All brokers.
pub(super) fn read(root: &Section<'_>, folder: &Path) -> Brokers {
    let sections = root.named_sections("broker", false).into_iter();
    let read = sections.map(|(name, section)| (name, broker(section, folder)));
    read.collect()
}

fn broker(section: Section<'_>, folder: &Path) -> Option<BrokerConfig> {
    let kind = kind(&section);
    let url = url(&section, folder);
    let layouts = [
        ("binary", Layout::Binary),
        ("structured", Layout::Structured),
    ];
    let layout = section.choice("layout", &layouts).unwrap_or_default();
    let ca_file = section.text("ca_file").map(|file| folder.join(file.value));
    let timeout_ms = section.duration_ms("timeout", "timeout_ms");
    let connect_timeout_ms = section.duration_ms("connect_timeout", "connect_timeout_ms");
    let intake = intake(&section, kind.as_ref());
    section.finish();
    Some(BrokerConfig {
        kind: kind?,
        url: url?,
        layout,
        ca_file,
        timeout_ms: timeout_ms.unwrap_or(TIMEOUT_MS_DEFAULT),
        connect_timeout_ms: connect_timeout_ms.unwrap_or(CONNECT_TIMEOUT_MS_DEFAULT),
        intake,
    })
}

/// How messages are taken in; none where nothing says from where.
fn intake(section: &Section<'_>, kind: Option<&BrokerKind>) -> Option<IntakeConfig> {
    let from = match kind {
        Some(BrokerKind::Nats { .. }) => section.text("consumer"),
        Some(BrokerKind::RabbitMq { .. }) => section.text("queue"),
        // Which of them belongs here is not to be said before.
        None => section.text("consumer").or(section.text("queue")),
    };
    let bindings = match kind {
        Some(BrokerKind::Nats { .. }) => None,
        _ => section.texts("bindings"),
    };
    let defaults = IntakeOptions::default();
    let prefetch = section.whole("prefetch");
    let prefetch_bytes = section.whole("prefetch_bytes");
    let ahead_max = section.whole("ahead_max");
    let ack_wait_ms = match kind {
        Some(BrokerKind::RabbitMq { .. }) => None,
        _ => section.duration_ms("ack_wait", "ack_wait_ms"),
    };
    let window_ms = section.duration_ms("redelivery_window", "redelivery_window_ms");
    let from = from?;
    if from.value.is_empty() {
        let message = "name what the messages are taken from";
        section.fault(FaultCode::BadValue, &from.place, message);
    }
    let most = BATCH_MESSAGES_MOST;
    if prefetch.is_some_and(|prefetch| !(1..=most).contains(&prefetch)) {
        let place = section.findings.place_of(&section.path_of("prefetch"));
        let message = format!("prefetch is between 1 and {most}");
        section.fault(FaultCode::BadValue, &place, message);
    }
    let bindings = bindings.map(|all| all.value.into_iter().map(|one| one.value).collect());
    Some(IntakeConfig {
        from: from.value,
        bindings: bindings.unwrap_or_default(),
        ack_wait_ms,
        prefetch: prefetch.unwrap_or(defaults.batch_messages_max),
        prefetch_bytes: prefetch_bytes.unwrap_or(defaults.batch_bytes_max),
        ahead_max: ahead_max.unwrap_or(defaults.ahead_max),
        redelivery_window_ms: window_ms.unwrap_or(defaults.memory_ms),
    })
}

fn kind(section: &Section<'_>) -> Option<BrokerKind> {
    let kinds = [("nats", true), ("rabbitmq", false)];
    let Some(is_nats) = section.choice("kind", &kinds) else {
        if !section.has("kind") {
            section.missing("kind", "\"nats\" or \"rabbitmq\"");
        }
        // Whether they belong here is not to be said before.
        let _ = (section.text("stream"), section.texts("declare_subjects"));
        let _ = (section.text("exchange"), section.flag("declare_exchange"));
        let _ = section.whole::<u64>("message_bytes_max");
        return None;
    };
    if is_nats {
        let stream = section.text("stream");
        if stream.is_none() && !section.has("stream") {
            section.missing("stream", "the JetStream stream that takes the messages");
        }
        let subjects = section.texts("declare_subjects");
        let subjects = subjects.map(|all| all.value.into_iter().map(|one| one.value).collect());
        return Some(BrokerKind::Nats {
            stream: stream?.value,
            subjects: subjects.unwrap_or_default(),
        });
    }
    let exchange = section.text("exchange");
    if !["exchange", "queue"].iter().any(|key| section.has(key)) {
        let wanted = "the exchange that takes the messages (\"\" for the default one), or queue, \
                      the one that they are taken from";
        section.missing("exchange", wanted);
    }
    Some(BrokerKind::RabbitMq {
        declare: section.flag("declare_exchange").unwrap_or_default(),
        message_bytes_max: section.whole("message_bytes_max"),
        exchange: exchange.map(|exchange| exchange.value),
    })
}

fn url(section: &Section<'_>, folder: &Path) -> Option<BrokerUrl> {
    let plain = section.text("url");
    match (
        plain,
        sections::secret(section, "url_file", "url_env", folder),
    ) {
        (Some(plain), Some(secret)) => {
            let message = format!("url and {} both name the broker: keep one", secret.value);
            section.fault(FaultCode::BadValue, &plain.place, message);
            None
        }
        (Some(plain), None) => {
            check_plain(section, &plain);
            Some(BrokerUrl::Plain(plain.value))
        }
        (None, Some(secret)) => Some(BrokerUrl::Secret(secret.value)),
        (None, None) => {
            if !["url", "url_file", "url_env"]
                .iter()
                .any(|key| section.has(key))
            {
                section.missing("url", "or url_file or url_env, where it holds a password");
            }
            None
        }
    }
}

fn check_plain(section: &Section<'_>, url: &Placed<String>) {
    match Url::parse(&url.value) {
        Err(error) => {
            let message = format!("is no address of a broker: {error}");
            section.fault(FaultCode::BadValue, &url.place, message);
        }
        Ok(parsed) if parsed.password().is_some() || !parsed.username().is_empty() => {
            let message = "the address holds credentials, which do not belong into this file: put \
                           the address into a file of its own and name it with url_file, or into \
                           the environment with url_env";
            section.fault(FaultCode::InlineSecret, &url.place, message);
        }
        Ok(_) => {}
    }
}

/// The relay of a subscription, where it names a broker.
pub(super) fn relay(subscription: &Section<'_>, brokers: &Brokers) -> Option<RelayConfig> {
    let template = subscription.text("topic");
    let Some(name) = subscription.text("broker") else {
        if let Some(template) = template.filter(|_| !subscription.has("broker")) {
            let message = "topic says nothing without broker";
            subscription.fault(FaultCode::Contract, &template.place, message);
        }
        return None;
    };
    if subscription.has("push") {
        let message = "a subscription has a push or a broker, not both: make two of it";
        subscription.fault(FaultCode::Contract, &name.place, message);
    }
    let topic = match &template {
        None => Some(Topic::default()),
        Some(template) => match Topic::parse(&template.value) {
            Ok(topic) => Some(topic),
            Err(problem) => {
                subscription.fault(FaultCode::BadValue, &template.place, problem.to_string());
                None
            }
        },
    };
    let Some(broker) = brokers.get(&name.value) else {
        let hint = suggestion(&name.value, brokers.keys().map(String::as_str));
        let message = format!("there is no [broker.{}]{hint}", name.value);
        subscription.fault(FaultCode::Contract, &name.place, message);
        return None;
    };
    let broker = broker.as_ref()?;
    if matches!(broker.kind, BrokerKind::RabbitMq { exchange: None, .. }) {
        let message = format!("[broker.{}] names no exchange to publish to", name.value);
        subscription.fault(FaultCode::Contract, &name.place, message);
    }
    Some(RelayConfig {
        timeout_ms: broker.timeout_ms,
        broker: name.value,
        topic: topic?,
    })
}

/// Where a subscription's messages come from.
pub(super) fn sources(subscription: &Section<'_>, brokers: &Brokers) -> Option<Vec<String>> {
    let named = subscription.one_or_more("source")?;
    for name in &named {
        let message = match brokers.get(&name.value) {
            _ if name.value == OUTBOX => continue,
            Some(Some(broker)) if broker.intake.is_none() => {
                let key = match broker.kind {
                    BrokerKind::Nats { .. } => "consumer",
                    BrokerKind::RabbitMq { .. } => "queue",
                };
                format!("[broker.{}] does not say from which {key}", name.value)
            }
            // What is wrong with it is noted there.
            Some(_) => continue,
            None => {
                let known = brokers.keys().map(String::as_str).chain([OUTBOX]);
                let hint = suggestion(&name.value, known);
                format!("there is no [broker.{}]{hint}", name.value)
            }
        };
        subscription.fault(FaultCode::Contract, &name.place, message);
    }
    Some(named.into_iter().map(|name| name.value).collect())
}

#[cfg(test)]
#[path = "broker_tests.rs"]
mod tests;
