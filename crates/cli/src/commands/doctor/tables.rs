//! What every store has: tables that fit, subscriptions that are registered, retention that runs.

use onceward_core::store::{Schema, SchemaState, Status, StoreErrorKind, Upkeep};

use super::Findings;
use crate::config::Config;
use crate::output::{age, now};
use crate::store::Opened;

/// Retention is late when it has not run for this long, in milliseconds.
const TIDY_LATE_MS: i64 = 10 * 60_000;

pub(super) async fn check<S: Schema + Status + Upkeep>(
    opened: Opened<'_, S>,
    config: Option<&Config>,
    findings: &mut Findings,
) {
    if schema(opened.store, findings).await {
        subscriptions(opened, config, findings).await;
        retention(opened, findings).await;
    }
}

/// Whether the tables fit.
async fn schema(store: &impl Schema, findings: &mut Findings) -> bool {
    const NAME: &str = "tables";
    match store.schema_state().await {
        Ok(SchemaState::Current { version }) => {
            findings.ok(NAME, format!("version {version}"));
            return true;
        }
        Ok(SchemaState::Missing) => {
            findings.failed(NAME, "there are none yet", "onceward migrate");
        }
        Ok(SchemaState::Behind { version, needed }) => {
            let found = format!("version {version}, but {needed} is needed");
            findings.failed(NAME, found, "onceward migrate");
        }
        Ok(SchemaState::Ahead { version, known }) => {
            let found = format!("version {version}, but this program knows only {known}");
            findings.failed(NAME, found, "update onceward");
        }
        Err(error) if error.kind() == StoreErrorKind::WrongEra => {
            let fix =
                "make sure that nothing works on the original, then onceward migrate --new-era";
            findings.failed(NAME, error.to_string(), fix);
        }
        Err(error) => {
            let fix = "see onceward explain OW1006";
            findings.failed(NAME, error.to_string(), fix);
        }
    }
    false
}

async fn subscriptions<S: Status>(
    opened: Opened<'_, S>,
    config: Option<&Config>,
    findings: &mut Findings,
) {
    const NAME: &str = "subscriptions";
    let registered = match opened.check(opened.store.subscriptions().await) {
        Ok(registered) => registered,
        Err(error) => {
            return findings.failed(NAME, error.full_message(), "see onceward explain OW1006");
        }
    };
    let count = registered.len();
    let declared = config.map(|config| config.contract.subscriptions.keys());
    let orphans: Vec<&str> = match declared {
        Some(declared) => {
            let declared: Vec<&String> = declared.collect();
            let orphans = registered.iter().filter(|name| !declared.contains(name));
            orphans.map(String::as_str).collect()
        }
        None => Vec::new(),
    };
    if orphans.is_empty() {
        return findings.ok(NAME, format!("{count} registered"));
    }
    let found = format!(
        "{} registered, but not in the configuration",
        orphans.join(", ")
    );
    let fix = "declare them (renamed_from where only the name changed); until then the log is kept \
               for them";
    findings.warning(NAME, found, fix);
}

async fn retention<S: Upkeep>(opened: Opened<'_, S>, findings: &mut Findings) {
    const NAME: &str = "retention";
    let fix = "keep one onceward up running: it tidies each minute";
    match opened.check(opened.store.last_tidy().await) {
        Ok(None) => findings.warning(NAME, "has not run yet", fix),
        Ok(Some((at, report))) => {
            let since_ms = now().millis_since(at);
            let found = format!("ran {} ago", age(since_ms));
            if since_ms > TIDY_LATE_MS {
                findings.warning(NAME, found, fix);
            } else if let Some(reason) = report.held_back_by {
                let fix = "finish or remove what holds it back; the log grows until then";
                findings.warning(NAME, format!("{found}, held back by {reason}"), fix);
            } else {
                findings.ok(NAME, found);
            }
        }
        Err(error) => findings.failed(NAME, error.full_message(), "see onceward explain OW1006"),
    }
}
