//! `onceward migrate`.

use clap::Args;
use onceward_core::store::{Schema, SchemaState};
use serde_json::json;

use crate::error::{Code, EXIT_USAGE, Error};
use crate::output::Output;
use crate::store::{Opened, Target};
use crate::store_url::{self, StoreKind};

/// Options of `migrate`.
#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// Print SQL that makes roles with the least rights (PostgreSQL), and change nothing
    #[arg(long)]
    grants: bool,
    /// Take a restored or copied database into service: seal its old rows, start a new era
    #[arg(long, conflicts_with = "grants")]
    new_era: bool,
}

impl MigrateArgs {
    /// Whether the store is not needed at all.
    #[must_use]
    pub const fn is_print(&self) -> bool {
        self.grants
    }
}

/// Prints the roles.
///
/// # Errors
/// When the store has none, or standard output fails.
pub fn print_grants(output: Output, target: &Target) -> Result<(), Error> {
    if target.kind() == StoreKind::Sqlite {
        let message = "SQLite has no roles: the permissions of the file and its folder decide";
        return Err(Error::new(Code::StoreFailed, message).with_exit(EXIT_USAGE));
    }
    let sql = onceward_postgres::grants_sql();
    if output.is_json() {
        return output.json(&json!({ "grants_sql": sql }));
    }
    output.line(sql.trim_end())
}

/// Migrates.
///
/// # Errors
/// When the store cannot be reached, or its tables are newer than this program.
pub async fn run<S: Schema>(
    opened: Opened<'_, S>,
    output: Output,
    args: &MigrateArgs,
) -> Result<(), Error> {
    let before = if args.new_era {
        // A restored database refuses to say more than that it is one.
        None
    } else {
        Some(opened.check(opened.store.schema_state().await)?)
    };
    let era = match args.new_era {
        true => Some(opened.check(opened.store.start_era().await)?),
        false => None,
    };
    let state = opened.migrate().await?;
    let SchemaState::Current { version } = state else {
        let message = "the migration ended, but the tables are not as they should be";
        return Err(Error::new(Code::StoreFailed, message));
    };
    let has_changed = before.as_ref() != Some(&state);
    if output.is_json() {
        return output.json(&json!({
            "version": version, "has_changed": has_changed, "era": era,
        }));
    }
    let shown = store_url::redact(opened.url);
    if let Some(era) = era {
        output.line(&format!("{shown}: era {era} begins"))?;
    }
    let done = if has_changed {
        "migrated to"
    } else {
        "already at"
    };
    output.line(&format!("{shown}: {done} version {version}"))
}
