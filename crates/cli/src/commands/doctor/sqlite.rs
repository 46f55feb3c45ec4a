//! What only a SQLite store needs: its modes, its file, room on its disk.

use std::path::Path;

use onceward_sqlite::Sqlite;
use sqlx::{Row as _, SqlitePool};

use super::Findings;
use crate::store_url;

/// Free space below which the disk is too full, in bytes.
const FREE_BYTES_MIN: u64 = 64 << 20;

/// Free space below which it is getting full, in bytes.
const FREE_BYTES_LOW: u64 = 1 << 30;

pub(super) async fn check(store: &Sqlite, url: &str, findings: &mut Findings) {
    modes(store.pool(), findings).await;
    let Some(path) = store_url::sqlite_path(url).map(Path::new) else {
        return;
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    permissions(path, folder, findings);
    space(folder, findings);
}

async fn modes(pool: &SqlitePool, findings: &mut Findings) {
    let failed = |findings: &mut Findings, error: &dyn std::fmt::Display| {
        findings.failed(
            "SQLite modes",
            error.to_string(),
            "see onceward explain OW1006",
        );
    };
    let journal = sqlx::query("pragma journal_mode").fetch_one(pool).await;
    match journal.and_then(|row| row.try_get::<String, _>(0)) {
        Ok(mode) if mode.eq_ignore_ascii_case("wal") => findings.ok("journal mode", mode),
        Ok(mode) => {
            let fix = "another program changed it: run pragma journal_mode = wal";
            findings.failed("journal mode", mode, fix);
        }
        Err(error) => failed(findings, &error),
    }
    let synchronous = sqlx::query("pragma synchronous").fetch_one(pool).await;
    match synchronous.and_then(|row| row.try_get::<i64, _>(0)) {
        // FULL is 2, EXTRA is 3: https://sqlite.org/pragma.html#pragma_synchronous
        Ok(level) if level >= 2 => findings.ok("synchronous", "full: a commit survives power loss"),
        Ok(level) => {
            let found = format!("level {level}: a commit may be lost with the power");
            findings.failed("synchronous", found, "pragma synchronous = full");
        }
        Err(error) => failed(findings, &error),
    }
}

#[cfg(unix)]
fn permissions(path: &Path, folder: &Path, findings: &mut Findings) {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path| std::fs::metadata(path).map(|m| m.permissions().mode() & 0o777);
    let shown = path.display();
    match mode(path) {
        Ok(mode) if mode & 0o002 != 0 => {
            let found = format!("everyone can write {shown} (mode {mode:o})");
            findings.failed("file", found, &format!("chmod 640 {shown}"));
        }
        Ok(mode) if mode & 0o004 != 0 => {
            let found = format!("everyone on this machine can read {shown} (mode {mode:o})");
            findings.warning("file", found, &format!("chmod 640 {shown}"));
        }
        Ok(mode) => findings.ok("file", format!("{shown} (mode {mode:o})")),
        Err(error) => {
            findings.failed("file", format!("{shown}: {error}"), "check the path");
        }
    }
    // The write-ahead file is made beside it.
    let probe = tempfile_in(folder);
    match probe {
        Ok(()) => findings.ok("folder", format!("{} can be written", folder.display())),
        Err(error) => {
            let fix = "give the folder to the user that runs onceward";
            findings.failed("folder", format!("{}: {error}", folder.display()), fix);
        }
    }
}

#[cfg(not(unix))]
fn permissions(_path: &Path, folder: &Path, findings: &mut Findings) {
    match tempfile_in(folder) {
        Ok(()) => findings.ok("folder", format!("{} can be written", folder.display())),
        Err(error) => {
            let fix = "give the folder to the user that runs onceward";
            findings.failed("folder", format!("{}: {error}", folder.display()), fix);
        }
    }
}

/// Makes and removes a file.
fn tempfile_in(folder: &Path) -> std::io::Result<()> {
    let path = folder.join(format!(".onceward-doctor-{}", std::process::id()));
    let made = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path);
    made.map(drop)?;
    std::fs::remove_file(&path)
}

#[cfg(unix)]
fn space(folder: &Path, findings: &mut Findings) {
    let fix = "make room on this disk; at its end acceptance answers 429 and nothing is dropped";
    match rustix::fs::statvfs(folder) {
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let found = format!("{} MiB free", free >> 20);
            if free < FREE_BYTES_MIN {
                findings.failed("disk", found, fix);
            } else if free < FREE_BYTES_LOW {
                findings.warning("disk", found, fix);
            } else {
                findings.ok("disk", found);
            }
        }
        Err(error) => findings.warning("disk", error.to_string(), "check the folder"),
    }
}

#[cfg(not(unix))]
fn space(_folder: &Path, _findings: &mut Findings) {}
