//! Secrets: there, not empty, and nobody else's to read.

use std::path::Path;

use super::Findings;
use crate::config::{Config, SecretSource, StoreUrl};

pub(super) fn check(config: &Config, findings: &mut Findings) {
    if let StoreUrl::Secret(source) = &config.store.url {
        check_secret("secret of the store", source, findings);
    }
    for (name, push) in &config.pushes {
        check_secret(&format!("secret of push {name}"), &push.secret, findings);
    }
    for token in &config.tokens {
        check_secret(&format!("token {}", token.name), &token.token, findings);
    }
    if config.tokens.is_empty() {
        findings.ok(
            "access",
            "no tokens: only this machine is served, as \"local\"",
        );
    }
}

fn check_secret(name: &str, source: &SecretSource, findings: &mut Findings) {
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
