//! The sections but `[subscription.NAME]`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use onceward_console::overview::CASES_MS_DEFAULT;
use onceward_core::KeyField;
use onceward_core::contract::{Kind, MessageContract, Promise};
use onceward_core::group::Priority;
use onceward_core::store::Retention;
use onceward_core::throttle::Throttle;

use super::fault::FaultCode;
use super::reader::{Placed, Section};
use super::{HttpConfig, Scope, SecretSource, StoreConfig, StoreUrl, TokenConfig};
use crate::store_url;

/// Where the listener is when nothing else is said.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8455);

/// Largest request body when nothing else is said, in bytes.
const BODY_BYTES_MAX_DEFAULT: usize = 1 << 20;

/// `file` or `env` of a secret, whichever is there; both at once are a fault.
pub(super) fn secret(
    section: &Section<'_>,
    in_file: &'static str,
    in_env: &'static str,
    folder: &Path,
) -> Option<Placed<SecretSource>> {
    let file = section.text(in_file);
    let env = section.text(in_env);
    if let (Some(_), Some(env)) = (&file, &env) {
        let message = format!("{in_file} and {in_env} both name the secret: keep one of them");
        section.fault(FaultCode::BadValue, &env.place, message);
    }
    match (file, env) {
        (Some(file), _) => Some(Placed {
            value: SecretSource::File(folder.join(file.value)),
            place: file.place,
        }),
        (None, Some(env)) => Some(Placed {
            value: SecretSource::Env(env.value),
            place: env.place,
        }),
        (None, None) => None,
    }
}

pub(super) fn store(root: &Section<'_>, folder: &Path) -> StoreConfig {
    let mut config = StoreConfig {
        url: StoreUrl::Plain(String::new()),
        source: None,
        connections_max: None,
    };
    let Some(section) = root.section("store") else {
        if !root.has("store") {
            root.missing(
                "[store]",
                "say where the messages are, url = \"sqlite:onceward.db\"",
            );
        }
        return config;
    };
    let plain = section.text("url");
    let secret = secret(&section, "url_file", "url_env", folder);
    match (plain, secret) {
        (Some(plain), Some(secret)) => {
            let message = format!("url and {} both name the database: keep one", secret.value);
            section.fault(FaultCode::BadValue, &plain.place, message);
        }
        (Some(plain), None) => config.url = plain_url(&section, &plain, folder),
        (None, Some(secret)) => config.url = StoreUrl::Secret(secret.value),
        (None, None) => {
            if !["url", "url_file", "url_env"]
                .iter()
                .any(|key| section.has(key))
            {
                section.missing("url", "or url_file or url_env, where it holds a password");
            }
        }
    }
    config.source = section.text("source").map(|source| source.value);
    config.connections_max = section.whole("connections_max");
    section.finish();
    config
}

fn plain_url(section: &Section<'_>, url: &Placed<String>, folder: &Path) -> StoreUrl {
    if let Err(problem) = store_url::check(&url.value) {
        section.fault(FaultCode::BadValue, &url.place, problem);
    } else if store_url::has_password(&url.value) {
        let message = "the address holds a password, which does not belong into this file: put \
                       the address into a file of its own and name it with url_file, or into the \
                       environment with url_env";
        section.fault(FaultCode::InlineSecret, &url.place, message);
    }
    StoreUrl::Plain(store_url::relative_to(&url.value, folder))
}

pub(super) fn http(root: &Section<'_>, tokens: &[TokenConfig]) -> HttpConfig {
    let mut config = HttpConfig {
        listen: LISTEN_DEFAULT,
        hosts: Vec::new(),
        body_bytes_max: BODY_BYTES_MAX_DEFAULT,
    };
    let Some(section) = root.section("http") else {
        return config;
    };
    if let Some(listen) = section.text("listen") {
        match listen.value.parse::<SocketAddr>() {
            Ok(address) if !address.ip().is_loopback() && tokens.is_empty() => {
                let message = format!(
                    "{address} is open to others, and no token is configured: add one under \
                     [[access.tokens]], or listen on 127.0.0.1"
                );
                section.fault(FaultCode::Insecure, &listen.place, message);
            }
            Ok(address) => config.listen = address,
            Err(_) => {
                let message = format!(
                    "{:?} is no address with a port, such as \"127.0.0.1:8455\" or \"[::1]:8455\"",
                    listen.value
                );
                section.fault(FaultCode::BadValue, &listen.place, message);
            }
        }
    }
    if let Some(hosts) = section.texts("hosts") {
        config.hosts = hosts.value.into_iter().map(|host| host.value).collect();
    }
    if let Some(bytes) = section.whole("body_bytes_max") {
        config.body_bytes_max = bytes;
    }
    section.finish();
    config
}

const SCOPES: [(&str, Scope); 4] = [
    ("publish", Scope::Publish),
    ("read", Scope::Read),
    ("operate", Scope::Operate),
    ("reveal", Scope::Reveal),
];

pub(super) fn tokens(root: &Section<'_>, folder: &Path) -> Vec<TokenConfig> {
    let Some(access) = root.section("access") else {
        return Vec::new();
    };
    let mut tokens: Vec<TokenConfig> = Vec::new();
    for section in access.listed_sections("tokens") {
        let name = section.text("name");
        if name.is_none() && !section.has("name") {
            section.missing("name", "who has the token");
        }
        if let Some(name) = &name
            && tokens.iter().any(|token| token.name == name.value)
        {
            let message = format!("another token is called {:?} already", name.value);
            section.fault(FaultCode::BadValue, &name.place, message);
        }
        refuse_inline(&section, "token", "token_file or token_env");
        let token = secret(&section, "token_file", "token_env", folder);
        if token.is_none() && !section.has("token_file") && !section.has("token_env") {
            section.missing("token_file", "or token_env, where the token is kept");
        }
        let scopes = scopes(&section);
        if let (Some(name), Some(token)) = (name, token) {
            tokens.push(TokenConfig {
                name: name.value,
                token: token.value,
                scopes,
            });
        }
        section.finish();
    }
    access.finish();
    tokens
}

fn scopes(section: &Section<'_>) -> Vec<Scope> {
    let Some(words) = section.texts("scopes") else {
        if !section.has("scopes") {
            section.missing(
                "scopes",
                "some of \"publish\", \"read\", \"operate\", \"reveal\"",
            );
        }
        return Vec::new();
    };
    let mut scopes = Vec::new();
    for word in words.value {
        match SCOPES.iter().find(|(name, _)| *name == word.value) {
            Some((_, scope)) => scopes.push(*scope),
            None => {
                let names = SCOPES.iter().map(|(name, _)| *name);
                let message = format!(
                    "no scope is called {:?}; there are \"publish\", \"read\", \"operate\" and \"reveal\"{}",
                    word.value,
                    super::reader::suggestion(&word.value, names)
                );
                section.fault(FaultCode::BadValue, &word.place, message);
            }
        }
    }
    scopes
}

/// A secret written where only its place belongs. Its value is not repeated.
pub(super) fn refuse_inline(section: &Section<'_>, key: &'static str, instead: &str) {
    if let Some(inline) = section.text(key) {
        let message =
            format!("a secret does not belong into this file: name its place with {instead}");
        section.fault(FaultCode::InlineSecret, &inline.place, message);
    }
}

/// What the store keeps, and how long cases are kept without a word, in milliseconds.
pub(super) fn retention(root: &Section<'_>) -> (Retention, u64) {
    let (mut retention, mut cases_ms) = (Retention::default(), CASES_MS_DEFAULT);
    let Some(section) = root.section("retention") else {
        return (retention, cases_ms);
    };
    let settings = [
        ("log", "log_ms", &mut retention.log_ms),
        ("ledger", "ledger_ms", &mut retention.ledger_ms),
        (
            "operation_ledger",
            "operation_ledger_ms",
            &mut retention.operation_ledger_ms,
        ),
        (
            "replay_window",
            "replay_window_ms",
            &mut retention.replay_window_ms,
        ),
        ("cases", "cases_ms", &mut cases_ms),
    ];
    for (in_words, in_ms, setting) in settings {
        if let Some(ms) = section.duration_ms(in_words, in_ms) {
            *setting = ms;
        }
    }
    if let Err(problem) = retention.check() {
        // The ledger's own setting where it is written down, else one of those that it must exceed.
        let candidates = [
            problem.setting,
            "log",
            "log_ms",
            "replay_window",
            "replay_window_ms",
        ];
        let named = candidates.into_iter().find(|key| section.has(key));
        let path = section.path_of(named.unwrap_or(problem.setting));
        let place = root.findings.place_of(&path);
        section.fault(FaultCode::Retention, &place, unsafe_retention(&problem));
    }
    section.finish();
    (retention, cases_ms)
}

fn unsafe_retention(problem: &onceward_core::store::UnsafeRetention) -> String {
    let words =
        |ms: u64| humantime::format_duration(std::time::Duration::from_millis(ms)).to_string();
    format!(
        "{} keeps {}, but a message may come again for {} (log and replay_window together), and \
         its effect would be repeated",
        problem.setting,
        words(problem.kept_ms),
        words(problem.needed_ms)
    )
}

pub(super) fn message(section: Section<'_>) -> MessageContract {
    let kinds = [
        ("command", Kind::Command),
        ("event", Kind::Event),
        ("log", Kind::Log),
    ];
    let keys = [
        ("subject", KeyField::Subject),
        ("partitionkey", KeyField::PartitionKey),
    ];
    let priorities = Priority::ALL.map(|priority| (priority.as_str(), priority));
    let text = |key| section.text(key).map(|text| text.value);
    let contract = MessageContract {
        kind: section.choice("kind", &kinds).unwrap_or_default(),
        key: section.choice("key", &keys).unwrap_or_default(),
        aggregate: text("aggregate"),
        owner: text("owner"),
        runbook: text("runbook"),
        pending_text: text("pending_text"),
        promise: promise(&section),
        throttle: section
            .choice(
                "throttle",
                &[("off", Throttle::Off), ("refuse", Throttle::Refuse)],
            )
            .unwrap_or_default(),
        priority: section.choice("priority", &priorities).unwrap_or_default(),
    };
    section.finish();
    contract
}

fn promise(section: &Section<'_>) -> Promise {
    let Some(section) = section.section("promise") else {
        return Promise::default();
    };
    let promise = Promise {
        accept_within_ms: section.duration_ms("accept_within", "accept_within_ms"),
        start_within_ms: section.duration_ms("start_within", "start_within_ms"),
        finish_within_ms: section.duration_ms("finish_within", "finish_within_ms"),
        useful_for_ms: section.duration_ms("useful_for", "useful_for_ms"),
    };
    section.finish();
    promise
}
