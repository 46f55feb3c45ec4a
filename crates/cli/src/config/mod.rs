//! `onceward.toml`: read as a whole, checked as a whole, every fault with its place.

mod broker;
mod fault;
mod payloads;
mod reader;
mod secret;
mod sections;
mod subscription;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

pub use onceward_console::Scope;
use onceward_console::overview::Standards;
use onceward_core::contract::Contract;
use onceward_core::store::Retention;
use toml::de::DeTable;

pub use broker::{BrokerConfig, BrokerKind, BrokerUrl, IntakeConfig, RelayConfig};
pub use fault::{Fault, FaultCode};
pub use payloads::PayloadRules;
pub(crate) use reader::suggestion;
pub use secret::{Secret, SecretSource};

use crate::error::{Code, Error};
use reader::{Findings, Section};
use subscription::Outside;

/// Where the messages are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Where the database's address is.
    pub url: StoreUrl,
    /// The `source` of messages that name none.
    pub source: Option<String>,
    /// Most effect transactions at once on PostgreSQL, where it is limited here.
    pub connections_max: Option<u32>,
}

/// The address of the database, or where to find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// As it stands in the file; without a password.
    Plain(String),
    /// In a file or an environment variable, because it holds a password.
    Secret(SecretSource),
}

/// The listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// Address and port; port 0 takes any that is free.
    pub listen: SocketAddr,
    /// Host names that requests may name besides the address itself.
    pub hosts: Vec<String>,
    /// Largest request body in bytes.
    pub body_bytes_max: usize,
}

/// A bearer token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenConfig {
    /// Who has it; the caller of its requests.
    pub name: String,
    /// Where it is kept.
    pub token: SecretSource,
    /// What it permits.
    pub scopes: Vec<Scope>,
}

/// A push: where the messages of a subscription are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushConfig {
    /// Target.
    pub url: String,
    /// What signs the requests.
    pub secret: SecretSource,
    /// How long an answer may take, in milliseconds.
    pub timeout_ms: u64,
    /// Where to ask whether an operation's effect happened.
    pub probe: Option<String>,
}

/// Everything that `onceward.toml` says.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The file.
    pub path: PathBuf,
    /// `[store]`.
    pub store: StoreConfig,
    /// `[http]`.
    pub http: HttpConfig,
    /// `[access]`.
    pub tokens: Vec<TokenConfig>,
    /// `[retention]`.
    pub retention: Retention,
    /// How long cases are kept without a word, in milliseconds.
    pub cases_ms: u64,
    /// `[message."TYPE"]` and `[subscription.NAME]`.
    pub contract: Contract,
    /// What is configured of payloads, by message type.
    pub payloads: BTreeMap<String, PayloadRules>,
    /// Pushes by subscription. A subscription without one is worked on by a service's own process.
    pub pushes: BTreeMap<String, PushConfig>,
    /// `[broker.NAME]`.
    pub brokers: BTreeMap<String, BrokerConfig>,
    /// Relays by subscription.
    pub relays: BTreeMap<String, RelayConfig>,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`Code::ConfigMissing`] when it cannot be read, [`Code::ConfigFaults`] with all faults.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|e| {
            Error::new(Code::ConfigMissing, format!("could not read {shown}")).with_source(e)
        })?;
        Self::parse(path, &text).map_err(Error::faults)
    }

    /// What is looked at beside the store when somebody asks how everything stands.
    #[must_use]
    pub fn standards(&self) -> Standards {
        let subscriptions = self.contract.subscriptions.values();
        Standards {
            holds: subscriptions.map(|s| (s.name.clone(), s.hold)).collect(),
            cases_ms: self.cases_ms,
        }
    }

    /// Checks a text as if it stood in the file `path`; relative paths in it start from there.
    ///
    /// # Errors
    /// All faults, in the order of their places.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Vec<Fault>> {
        let findings = Findings::default();
        let (table, syntax_errors) = DeTable::parse_recoverable(text);
        for error in syntax_errors {
            let place = error.span().unwrap_or(0..0);
            findings.fault(FaultCode::Syntax, &place, error.message());
        }
        let config = read(path, Section::root(&findings, table.get_ref()));
        let faults = findings.into_faults();
        if faults.is_empty() {
            return Ok(config);
        }
        let file = path.display().to_string();
        let mut located = fault::locate(faults, &file, text);
        located.dedup();
        Err(located)
    }

    /// The folder that relative paths in the file start from.
    #[must_use]
    pub fn folder(&self) -> &Path {
        folder_of(&self.path)
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new(""),
    }
}

fn read(path: &Path, root: Section<'_>) -> Config {
    let folder = folder_of(path);
    for key in ["reconcile", "alert"] {
        root.not_in_this_build(key);
    }
    let store = sections::store(&root, folder);
    let tokens = sections::tokens(&root, folder);
    let http = sections::http(&root, &tokens);
    let (retention, cases_ms) = sections::retention(&root);
    let mut contract = Contract::default();
    let mut payloads = BTreeMap::new();
    for (name, section) in root.named_sections("message", true) {
        payloads.insert(name.clone(), payloads::read(&section, folder));
        let message = sections::message(section);
        contract.messages.insert(name, message);
    }
    let brokers = broker::read(&root, folder);
    let (mut pushes, mut relays) = (BTreeMap::new(), BTreeMap::new());
    for (name, section) in root.named_sections("subscription", false) {
        let (subscription, outside) = subscription::read(&name, section, folder, &brokers);
        contract.subscriptions.insert(name.clone(), subscription);
        match outside {
            Some(Outside::Push(push)) => drop(pushes.insert(name, push)),
            Some(Outside::Relay(relay)) => drop(relays.insert(name, relay)),
            None => {}
        }
    }
    let good = brokers.into_iter();
    let good = good.filter_map(|(name, broker)| Some((name, broker?)));
    check_contract(&root, &contract);
    root.finish();
    Config {
        path: path.to_owned(),
        store,
        http,
        tokens,
        retention,
        cases_ms,
        contract,
        payloads,
        pushes,
        brokers: good.collect(),
        relays,
    }
}

/// Faults of the whole, each at the setting that its path names.
fn check_contract(root: &Section<'_>, contract: &Contract) {
    for fault in contract.faults() {
        let place = root.findings.place_of(&fault.path);
        let message = match nearest_type(contract, &fault) {
            Some(hint) => format!("{}{hint}", fault.message),
            None => fault.message,
        };
        root.fault(FaultCode::Contract, &place, message);
    }
}

fn nearest_type(
    contract: &Contract,
    fault: &onceward_core::contract::ContractFault,
) -> Option<String> {
    if fault.kind != onceward_core::contract::FaultKind::UnknownType {
        return None;
    }
    let (subscription, index) = fault.path.rsplit_once(".messages[")?;
    let name = subscription.strip_prefix("subscription.")?;
    let index: usize = index.strip_suffix(']')?.parse().ok()?;
    let wrong = contract.subscriptions.get(name)?.types.get(index)?;
    let known = contract.messages.keys().map(String::as_str);
    Some(reader::suggestion(wrong, known))
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
