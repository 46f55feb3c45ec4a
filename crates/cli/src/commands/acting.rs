//! Who acts, on what, and whether that is meant: shared by all commands that change something.

use std::io::{BufRead as _, IsTerminal as _};

use clap::Args;
use onceward_core::Timestamp;
use onceward_core::case::Refusal;
use onceward_core::store::{Actor, Status, StoreError, StoreErrorKind};

use crate::config::suggestion;
use crate::error::{Code, EXIT_USAGE, Error};
use crate::output::{Output, now};
use crate::store::Opened;

/// Who acts, and why.
#[derive(Clone, Debug, Args)]
pub struct ActorArgs {
    /// Who acts, for the audit log; the login name if not given
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
}

impl ActorArgs {
    /// Of what another option says.
    #[must_use]
    pub const fn of(name: Option<String>, why: String) -> Self {
        Self {
            name,
            why: Some(why),
        }
    }

    /// The name that goes to the audit log.
    #[must_use]
    pub fn who(&self) -> String {
        let named = ["LOGNAME", "USER", "USERNAME"]
            .iter()
            .find_map(|name| std::env::var(name).ok().filter(|name| !name.is_empty()));
        self.name.clone().or(named).unwrap_or_else(process_owner)
    }

    /// The actor, with the name from [`who`](Self::who).
    #[must_use]
    pub fn actor<'a>(&'a self, who: &'a str) -> Actor<'a> {
        Actor {
            who,
            why: self.why.as_deref(),
        }
    }
}

#[cfg(unix)]
fn process_owner() -> String {
    format!("uid {}", rustix::process::getuid().as_raw())
}

#[cfg(not(unix))]
fn process_owner() -> String {
    "unknown".to_owned()
}

/// How much may be changed at once, and whether it is asked about.
#[derive(Debug, Args)]
pub struct BoundArgs {
    /// Refuse to change more than this at once
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub max: u32,
}

/// Whether a destructive command is meant.
#[derive(Debug, Args)]
pub struct ConfirmArgs {
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

impl ConfirmArgs {
    /// Asks on the terminal, unless it was said before.
    ///
    /// # Errors
    /// When the answer is no, or nobody can be asked.
    pub fn ask(&self, output: Output, question: &str) -> Result<(), Error> {
        if self.yes {
            return Ok(());
        }
        let refused = |message: &str| {
            let error = Error::new(Code::Unconfirmed, message);
            Err(error.with_exit(EXIT_USAGE))
        };
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return refused(
                "nothing was changed: nobody can be asked here; --yes says that it is meant",
            );
        }
        output.say(&format!("{question} [y/N]"));
        let mut answer = String::new();
        // One that cannot be read is none.
        let read = stdin.lock().read_line(&mut answer);
        match (read, answer.trim()) {
            (Ok(_), "y" | "Y" | "yes") => Ok(()),
            _ => refused("nothing was changed"),
        }
    }
}

/// An error of an action: what moved meanwhile and what is not possible have codes of their own.
#[must_use]
pub fn refusal(url: &str, error: &StoreError) -> Error {
    let code = match error.kind() {
        StoreErrorKind::Moved => Code::Moved,
        StoreErrorKind::Refused => Code::ActionRefused,
        _ => return Error::store(url, error),
    };
    let text = error.to_string();
    let is_reason = text.ends_with(&Refusal::ReasonMissing.to_string());
    let hint = if is_reason { " (--why)" } else { "" };
    Error::new(code, text).with_hint(hint)
}

/// The error of a command that was given the name of a subscription; where there is none of that
/// name, with the one that was probably meant.
pub async fn of_name<S: Status>(opened: Opened<'_, S>, name: &str, error: Error) -> Error {
    match opened.store.subscriptions().await {
        Ok(names) if !names.iter().any(|known| known == name) => {
            error.with_hint(&suggestion(name, names.iter().map(String::as_str)))
        }
        // It is not the name, or nobody can say.
        Ok(_) | Err(_) => error,
    }
}

/// That there is no subscription of a name, and which was probably meant.
#[must_use]
pub fn no_subscription(name: &str, names: &[String]) -> Error {
    let message = format!("no subscription is called {name:?} in this store");
    let hint = suggestion(name, names.iter().map(String::as_str));
    Error::new(Code::NotFound, message).with_hint(&hint)
}

/// The number of a case.
///
/// # Errors
/// In words, when it is none.
pub fn case_number(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| {
        "a case is named by its number, as `onceward quarantine list` shows it".to_owned()
    })
}

/// The number of a campaign.
///
/// # Errors
/// In words, when it is none.
pub fn campaign_number(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| {
        "a campaign is named by its number, as `onceward replay list` shows it".to_owned()
    })
}

/// A moment: in RFC 3339, or so long before now (`2h`).
///
/// # Errors
/// In words, when it is neither.
pub fn past(text: &str) -> Result<Timestamp, String> {
    moment(text, -1)
}

/// A moment: in RFC 3339, or so long after now (`2days`).
///
/// # Errors
/// In words, when it is neither.
pub fn future(text: &str) -> Result<Timestamp, String> {
    moment(text, 1)
}

fn moment(text: &str, sign: i64) -> Result<Timestamp, String> {
    if let Ok(wait) = humantime::parse_duration(text) {
        let wait_ms = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        return Ok(now().plus_millis(sign * wait_ms));
    }
    text.parse().map_err(|_| {
        format!("{text:?} is neither a moment such as 2026-11-30T12:00:00Z nor a time such as 2h")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates_or_distances() {
        let fixed = past("2026-11-30T12:00:00Z").unwrap();
        assert_eq!(fixed, future("2026-11-30T12:00:00Z").unwrap());
        let hours = now().millis_since(past("2h").unwrap());
        assert!((7_190_000..7_260_000).contains(&hours), "{hours}");
        let days = future("2days").unwrap().millis_since(now());
        assert!((172_700_000..=172_800_000).contains(&days), "{days}");
        assert!(past("yesterday").is_err());
    }

    #[test]
    fn a_given_name_goes_before_the_login_name() {
        let named = ActorArgs {
            name: Some("ada".to_owned()),
            why: None,
        };
        assert_eq!(named.who(), "ada");
        let unnamed = ActorArgs {
            name: None,
            why: None,
        };
        assert!(!unnamed.who().is_empty());
    }
}
