//! `onceward.toml`: every fault at a place of the text; what has none is safe to start with.

use std::path::Path;

use onceward_cli::config::{Config, Fault, SecretSource, StoreUrl};
use onceward_cli::{store_url, target};

use crate::place;

/// The file that the text seems to stand in. Its folder is not there.
const FILE: &str = "/nonexistent/shop/onceward.toml";

/// The text of a file.
pub(crate) fn read(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    // Schemas are looked at, and devices may never end.
    if text.contains("/dev") || text.contains("/proc") {
        return;
    }
    match Config::parse(Path::new(FILE), text) {
        Ok(config) => is_safe(&config),
        Err(faults) => {
            assert!(!faults.is_empty());
            for fault in &faults {
                is_placed(fault, text);
            }
            let places: Vec<_> = faults.iter().map(|f| (f.line, f.column)).collect();
            assert!(places.is_sorted(), "faults are not in order: {places:?}");
        }
    }
}

fn is_placed(fault: &Fault, text: &str) {
    assert_eq!(fault.file, FILE);
    assert!(!fault.message.is_empty());
    place::plain(&fault.to_string());
    let line = text.split('\n').nth(fault.line.wrapping_sub(1));
    let line = line.expect("the line of a fault is there");
    let columns = 1..=line.chars().count() + 1;
    assert!(
        columns.contains(&fault.column),
        "{fault} is behind its line"
    );
}

/// What starting relies on, looked up again here.
fn is_safe(config: &Config) {
    assert!(config.contract.faults().is_empty());
    assert!(config.retention.check().is_ok());
    if let StoreUrl::Plain(url) = &config.store.url {
        assert!(store_url::check(url).is_ok(), "{url:?} names no store");
        assert!(!store_url::has_password(url), "a password is inline");
    }
    let is_open = !config.http.listen.ip().is_loopback();
    assert!(!is_open || !config.tokens.is_empty(), "open to everyone");
    let mut names: Vec<&str> = config
        .tokens
        .iter()
        .map(|token| token.name.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(
        names.len(),
        config.tokens.len(),
        "two callers have one name"
    );
    for (name, push) in &config.pushes {
        let subscription = &config.contract.subscriptions[name];
        let url = target::check(&push.url).expect("a push has an address");
        let is_made = matches!(push.secret, SecretSource::Made(_));
        assert!(
            target::is_loopback(&url) || !is_made,
            "{name} is not signed"
        );
        assert!(
            subscription.timeout_ms > push.timeout_ms,
            "{name} is cut off"
        );
    }
}
