//! `onceward doctor`: checks everything that onceward needs, and says how to repair it.

mod files;
mod network;
mod postgres;
mod sqlite;
mod tables;

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::json;

use crate::cli::Global;
use crate::config::Config;
use crate::error::{Code, Error};
use crate::output::Output;
use crate::store::{Store, Target, with_store};
use crate::store_url;

/// How long one check may take.
const CHECK_WITHIN: Duration = Duration::from_secs(5);

/// Options of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Do not open connections to push targets
    #[arg(long)]
    offline: bool,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Ok,
    Warning,
    Failed,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    name: String,
    verdict: Verdict,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

/// All checks, in the order in which they were made.
#[derive(Debug, Default)]
struct Findings {
    checks: Vec<Check>,
}

impl Findings {
    fn add(&mut self, name: &str, verdict: Verdict, found: impl Into<String>, fix: Option<&str>) {
        self.checks.push(Check {
            name: name.to_owned(),
            verdict,
            found: found.into(),
            fix: fix.map(str::to_owned),
        });
    }

    fn ok(&mut self, name: &str, found: impl Into<String>) {
        self.add(name, Verdict::Ok, found, None);
    }

    fn warning(&mut self, name: &str, found: impl Into<String>, fix: &str) {
        self.add(name, Verdict::Warning, found, Some(fix));
    }

    fn failed(&mut self, name: &str, found: impl Into<String>, fix: &str) {
        self.add(name, Verdict::Failed, found, Some(fix));
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.checks
            .iter()
            .filter(|check| check.verdict == verdict)
            .count()
    }
}

/// Examines.
///
/// # Errors
/// When a check failed, or standard output does.
pub async fn run(global: &Global, output: Output, args: &DoctorArgs) -> Result<(), Error> {
    let mut findings = Findings::default();
    let config = configuration(global, &mut findings);
    if let Some(config) = &config {
        files::check(config, &mut findings);
        network::check(config, args.offline, &mut findings).await;
    }
    check_store(global, config.as_ref(), &mut findings).await;
    report(output, &findings)?;
    match findings.count(Verdict::Failed) {
        0 => Ok(()),
        n => {
            let message = format!("{n} of {} checks failed", findings.checks.len());
            Err(Error::new(Code::Doctor, message))
        }
    }
}

fn configuration(global: &Global, findings: &mut Findings) -> Option<Config> {
    let path = global.config.display();
    match Config::load(&global.config) {
        Ok(config) => {
            let (types, subscriptions) = (
                config.contract.messages.len(),
                config.contract.subscriptions.len(),
            );
            let found = format!("{path}: {types} message types, {subscriptions} subscriptions");
            findings.ok("configuration", found);
            Some(config)
        }
        Err(error) if error.code() == Code::ConfigMissing && global.store.is_some() => {
            let found = format!("{path} is not there; only the store is checked");
            findings.warning("configuration", found, "write one: onceward init");
            None
        }
        Err(error) if error.code() == Code::ConfigMissing => {
            let fix = "name it with --config FILE, or write a first one: onceward init";
            findings.failed("configuration", error.full_message(), fix);
            None
        }
        Err(error) => {
            for fault in error.found_faults() {
                let fix = format!("onceward explain {}", fault.code.as_str());
                findings.failed("configuration", fault.to_string(), &fix);
            }
            None
        }
    }
}

async fn check_store(global: &Global, config: Option<&Config>, findings: &mut Findings) {
    let target = match config {
        Some(config) => Target::of_config(global, config),
        None if global.store.is_some() => Target::of(global),
        None => return,
    };
    let target = match target {
        Ok(target) => target,
        Err(error) => {
            let fix = format!("onceward explain {}", error.code().as_str());
            return findings.failed("store address", error.full_message(), &fix);
        }
    };
    let shown = store_url::redact(&target.url);
    let opened = tokio::time::timeout(CHECK_WITHIN * 3, target.open(false)).await;
    let store = match opened {
        Ok(Ok(store)) => store,
        Ok(Err(error)) => {
            let fix = match target.kind() {
                store_url::StoreKind::Sqlite => {
                    "make it with onceward migrate, or correct the path"
                }
                store_url::StoreKind::Postgres => {
                    "start the server or correct the address; try psql with the same address"
                }
            };
            return findings.failed("store", error.full_message(), fix);
        }
        Err(_) => {
            let found = format!(
                "{shown} did not answer within {} s",
                (CHECK_WITHIN * 3).as_secs()
            );
            let fix = "check host, port and firewall; try psql with the same address";
            return findings.failed("store", found, fix);
        }
    };
    findings.ok("store", format!("{shown} answers"));
    with_store!(&store, &target.url, opened => tables::check(opened, config, findings).await);
    match &store {
        Store::Sqlite(store) => sqlite::check(store, &target.url, findings).await,
        Store::Postgres(store) => postgres::check(store, &target.url, findings).await,
    }
    store.close().await;
}

fn report(output: Output, findings: &Findings) -> Result<(), Error> {
    let (failed, warnings) = (
        findings.count(Verdict::Failed),
        findings.count(Verdict::Warning),
    );
    if output.is_json() {
        return output.json(&json!({
            "ok": failed == 0, "failed": failed, "warnings": warnings, "checks": findings.checks,
        }));
    }
    for check in &findings.checks {
        let mark = match check.verdict {
            Verdict::Ok => output.good("ok     "),
            Verdict::Warning => "warning".to_owned(),
            Verdict::Failed => output.bad("FAILED "),
        };
        output.line(&format!("{mark} {}: {}", check.name, check.found))?;
        if let Some(fix) = &check.fix {
            output.line(&format!("        fix: {fix}"))?;
        }
    }
    Ok(())
}
