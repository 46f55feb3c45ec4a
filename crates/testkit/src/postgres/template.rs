//! Databases that are prepared once and copied for each test, also by the other processes of a run:
//! test runners start a process for each test.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use super::database::{TestDatabase, psql, shared_server};
use super::server::in_background;

/// Templates of ours start with this; what follows names the program, and its build.
const NAME_PREFIX: &str = "onceward_template_";

/// How often a template is given its name while sessions of its making are still closing.
const NAMING_TRIES: u32 = 200;

impl TestDatabase {
    /// A database made as `prepare` says, which gets the URL of an empty one, once for all runs of
    /// this build of the test program, and copied from then on. `prepare` leaves no connection
    /// open.
    ///
    /// # Panics
    /// When there is no PostgreSQL or it refuses; the text says what to do.
    pub async fn prepared<P: Future<Output = ()>>(prepare: impl FnOnce(String) -> P) -> Self {
        let template = template_name();
        let known = template.clone();
        let found = in_background(move || find(&known)).await;
        let is_there = found.unwrap_or_else(|reason| panic!("no PostgreSQL: {reason}"));
        if !is_there {
            let made = Self::lease().await;
            prepare(made.url().to_owned()).await;
            let known = template.clone();
            let named = in_background(move || made.become_template(&known)).await;
            named.unwrap_or_else(|reason| panic!("no template of a database: {reason}"));
        }
        let copied = in_background(move || Self::lease_blocking(&template)).await;
        copied.unwrap_or_else(|reason| panic!("no copy of a database: {reason}"))
    }

    /// Takes the template's name, unless another process was faster.
    fn become_template(self, name: &str) -> Result<(), String> {
        let rename = format!("alter database {} rename to {name}", self.name());
        let mut tries = 0;
        loop {
            let Err(reason) = psql(self.server_url(), &rename) else {
                self.forget();
                return Ok(());
            };
            if find(name)? {
                return Ok(());
            }
            tries += 1;
            if tries > NAMING_TRIES {
                return Err(reason);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn find(name: &str) -> Result<bool, String> {
    let sql = format!("select 1 from pg_database where datname = '{name}'");
    let found = psql(&shared_server()?, &sql)?;
    Ok(found.trim() == "1")
}

/// Another build may prepare something else.
fn template_name() -> String {
    let mut hasher = DefaultHasher::new();
    let program = std::env::current_exe().unwrap_or_default();
    program.hash(&mut hasher);
    if let Ok(known) = program.metadata() {
        known.len().hash(&mut hasher);
        known.modified().ok().hash(&mut hasher);
    }
    format!("{NAME_PREFIX}{:016x}", hasher.finish())
}
