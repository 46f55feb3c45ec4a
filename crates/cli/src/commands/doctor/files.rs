//! Secrets: there, not empty, and nobody else's to read.

use std::path::Path;

use onceward::push::SigningSecrets;
use onceward_console::Access;

use super::Findings;
use crate::config::{Config, SecretSource, StoreUrl};
use crate::store_url;

pub(super) fn check(config: &Config, findings: &mut Findings) {
    if let StoreUrl::Secret(source) = &config.store.url {
        let is_good = |url: &str| store_url::check(url).map(drop);
        check_secret("secret of the store", source, is_good, findings);
    }
    for (name, push) in &config.pushes {
        let is_good = |secret: &str| match SigningSecrets::parse(secret) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        check_secret(
            &format!("secret of push {name}"),
            &push.secret,
            is_good,
            findings,
        );
    }
    for token in &config.tokens {
        let is_good = |secret: &str| match Access::default().with_token(&token.name, secret, []) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        check_secret(
            &format!("token {}", token.name),
            &token.token,
            is_good,
            findings,
        );
    }
    if config.tokens.is_empty() {
        findings.ok(
            "access",
            "no tokens: only this machine is served, as \"local\"",
        );
    }
}

/// Reads a secret, and asks `is_good` what is wrong with it.
fn check_secret(
    name: &str,
    source: &SecretSource,
    is_good: impl Fn(&str) -> Result<(), String>,
    findings: &mut Findings,
) {
    let is_made_later = matches!(source, SecretSource::Made(path) if !path.exists());
    if !is_made_later
        && let Ok(secret) = source.read()
        && let Err(problem) = is_good(secret.reveal())
    {
        return findings.failed(
            name,
            format!("{source}: {problem}"),
            "write another one there",
        );
    }
    match source {
        SecretSource::Made(path) if !path.exists() => {
            findings.ok(
                name,
                format!("{} is made when it is first needed", path.display()),
            );
        }
        SecretSource::Env(variable) => match source.read() {
            Ok(_) => findings.ok(name, format!("in {variable}")),
            Err(error) => {
                let fix = format!("set {variable} where onceward runs");
                findings.failed(name, error.full_message(), &fix);
            }
        },
        SecretSource::File(path) | SecretSource::Made(path) => match source.read() {
            Ok(_) => check_mode(name, path, findings),
            Err(error) => {
                let fix = format!("write it to {} and chmod 600 it", path.display());
                findings.failed(name, error.full_message(), &fix);
            }
        },
    }
}

#[cfg(unix)]
fn check_mode(name: &str, path: &Path, findings: &mut Findings) {
    use std::os::unix::fs::PermissionsExt as _;
    let shown = path.display();
    let mode = match std::fs::metadata(path) {
        Ok(metadata) => metadata.permissions().mode() & 0o777,
        Err(error) => {
            return findings.failed(name, format!("{shown}: {error}"), "check the path");
        }
    };
    let fix = format!("chmod 600 {shown}");
    match mode {
        mode if mode & 0o007 != 0 => {
            findings.failed(
                name,
                format!("everyone can read {shown} (mode {mode:o})"),
                &fix,
            );
        }
        mode if mode & 0o070 != 0 => {
            findings.warning(
                name,
                format!("a group can read {shown} (mode {mode:o})"),
                &fix,
            );
        }
        _ => findings.ok(name, format!("{shown}, its owner's only")),
    }
}

#[cfg(not(unix))]
fn check_mode(name: &str, path: &Path, findings: &mut Findings) {
    findings.ok(name, format!("{} is readable", path.display()));
}
