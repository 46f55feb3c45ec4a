//! The database helpers against a real server.

use onceward_testkit::postgres::{PostgresOptions, PostgresServer, TestDatabase};
use std::process::Command;
use std::time::{Duration, Instant};

fn query(url: &str, sql: &str) -> Result<String, String> {
    let output = Command::new("psql")
        .args(["-XAtq", "-d", url, "-c", sql])
        .output()
        .expect("psql is there and speaks UTF-8");
    if output.status.success() {
        Ok(String::from_utf8(output.stdout)
            .expect("psql is there and speaks UTF-8")
            .trim()
            .to_owned())
    } else {
        Err(String::from_utf8(output.stderr).expect("psql is there and speaks UTF-8"))
    }
}

#[tokio::test]
async fn a_leased_database_is_fresh_and_gone_afterwards() {
    let database = TestDatabase::lease().await;
    let other = TestDatabase::lease().await;
    assert_ne!(database.name(), other.name());
    database
        .psql("create table t (i int); insert into t values (7)")
        .await;
    let copy = database.copy().await;
    assert_eq!(copy.psql("select i from t").await.trim(), "7");
    assert!(query(other.url(), "select i from t").is_err());
    let (name, server) = (database.name().to_owned(), other.server_url().to_owned());
    drop(database);
    let count = format!("select count(*) from pg_database where datname = '{name}'");
    // It goes without the test waiting for it.
    let since = Instant::now();
    while query(&server, &count).unwrap() != "0" {
        assert!(since.elapsed() < Duration::from_secs(60), "{name} stays");
    }
}

#[tokio::test]
async fn a_server_of_ones_own_survives_stop_kill_and_freeze() {
    let options = PostgresOptions::default().with_setting("application_name", "it's ours");
    let mut server = PostgresServer::start_with(options).await;
    let url = server.url("postgres");
    assert_eq!(query(&url, "show application_name").unwrap(), "psql");
    let settings = "select string_agg(setting, ',' order by name) from pg_settings where name in \
                    ('fsync', 'wal_level', 'max_connections', 'max_prepared_transactions')";
    assert_eq!(query(&url, settings).unwrap(), "on,200,64,logical");
    query(&url, "create table t (i int)").unwrap();

    let first = server.pid();
    server.kill().await;
    assert!(query(&url, "select 1").is_err());
    server.restart().await;
    assert_ne!(server.pid(), first);
    query(&url, "insert into t values (1)").unwrap();

    server.pause();
    let waiting = Command::new("psql")
        .args(["-XAtq", "-d", &url, "-c", "select count(*) from t"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    server.resume();
    let answer = waiting.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(answer.stdout).unwrap().trim(), "1");

    server.stop().await;
    assert!(query(&url, "select 1").is_err());
    let folder = server.data_folder();
    drop(server);
    assert!(!folder.exists());
}
