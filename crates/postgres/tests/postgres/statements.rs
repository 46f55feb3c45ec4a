//! Every statement is one that the server can prepare.

use std::path::Path;

use sqlx::{AssertSqlSafe, Executor as _};

use crate::support::{session, store};

fn collect(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|e| e == "sql") {
            found.push(path);
        }
    }
}

#[tokio::test]
async fn every_statement_can_be_prepared() {
    let (database, _store) = store().await;
    let mut files = Vec::new();
    collect(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("sql"),
        &mut files,
    );
    assert!(files.len() > 60, "only {} files found", files.len());
    let mut connection = session(&database).await;
    for (i, file) in files.iter().enumerate() {
        let text = std::fs::read_to_string(file).unwrap();
        if text.starts_with("COPY") {
            // Not prepared, but understood in the same way before the first row.
            let copy = connection.copy_in_raw(&text).await;
            let copy = copy.unwrap_or_else(|error| panic!("{}: {error:?}", file.display()));
            copy.abort("no rows").await.unwrap();
            continue;
        }
        let prepare = format!("prepare statement_{i} as {text}");
        let done = connection
            .execute(sqlx::raw_sql(AssertSqlSafe(prepare)))
            .await;
        assert!(done.is_ok(), "{}: {:?}", file.display(), done.err());
    }
}

#[tokio::test]
async fn statements_refer_to_their_tables_in_full() {
    let mut files = Vec::new();
    collect(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("sql"),
        &mut files,
    );
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for word in ["from ", "join ", "into ", "update "] {
            for table in [
                "outbox",
                "ledger",
                "lanes",
                "members",
                "deferrals",
                "cases",
                "meta",
            ] {
                let bare = format!("{word}{table}");
                assert!(!text.contains(&bare), "{} has {bare:?}", file.display());
            }
        }
    }
}
