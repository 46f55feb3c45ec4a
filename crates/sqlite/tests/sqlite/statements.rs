//! Every statement is one that SQLite can prepare against the migrated tables.

use std::fs;
use std::path::{Path, PathBuf};

use sqlx::{AssertSqlSafe, Executor, SqlSafeStr};

use crate::file::TestFile;

fn sql_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sql_files(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

#[tokio::test]
async fn every_sql_file_is_one_statement_that_can_be_prepared() {
    let file = TestFile::new().await;
    let mut connection = file.store.pool().acquire().await.unwrap();
    // A savepoint must be open for the steps that end one.
    sqlx::query("SAVEPOINT onceward_mark")
        .execute(&mut *connection)
        .await
        .unwrap();
    let files = sql_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("sql"));
    assert!(files.len() > 50, "{} files", files.len());
    for path in files {
        let sql = fs::read_to_string(&path).unwrap();
        assert!(!sql.contains(';'), "{} holds one statement", path.display());
        let prepared = connection.prepare(AssertSqlSafe(sql).into_sql_str()).await;
        assert!(prepared.is_ok(), "{}: {:?}", path.display(), prepared.err());
    }
}

/// What a restart of an engine reads must not walk the whole log.
#[tokio::test]
async fn reading_goes_by_index() {
    let file = TestFile::new().await;
    for (sql, expected) in [
        (
            include_str!("../../sql/log/read.sql"),
            "SEARCH onceward_outbox USING INTEGER PRIMARY KEY",
        ),
        (
            include_str!("../../sql/status/operation.sql"),
            "USING INDEX onceward_outbox_operation",
        ),
        (
            include_str!("../../sql/deferrals/held_keys.sql"),
            "INDEX onceward_deferral_key",
        ),
        (
            include_str!("../../sql/deferrals/load_key.sql"),
            "INDEX onceward_deferral_key",
        ),
        (
            include_str!("../../sql/effects/clear.sql"),
            "SEARCH onceward_deferral USING PRIMARY KEY",
        ),
        (
            include_str!("../../sql/cases/held.sql"),
            "INDEX onceward_case_key",
        ),
    ] {
        let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
        let plan: Vec<(i64, i64, i64, String)> = sqlx::query_as(explain)
            .fetch_all(file.store.pool())
            .await
            .unwrap();
        let lines: Vec<&str> = plan.iter().map(|step| step.3.as_str()).collect();
        assert!(
            lines.iter().any(|line| line.contains(expected)),
            "{sql}\n{lines:#?}"
        );
    }
}
