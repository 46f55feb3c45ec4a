//! What a command can end with: a code with a page, a text, an exit status.

use std::error::Error as StdError;
use std::fmt;

use onceward_core::store::{StoreError, StoreErrorKind};

use crate::config::Fault;
use crate::store_url;

/// Exit status of a command that failed.
pub const EXIT_FAILED: u8 = 1;
/// Exit status after a wrong command line.
pub const EXIT_USAGE: u8 = 2;
/// Exit status when differences were found.
pub const EXIT_DIFFERENCES: u8 = 3;
/// Exit status when a schema does not fit.
pub const EXIT_SCHEMA: u8 = 4;
/// Exit status when only a part could be done.
pub const EXIT_PARTLY: u8 = 5;

macro_rules! codes {
    ($($(#[$doc:meta])+ $name:ident = $code:literal,)+) => {
        /// Stable codes. Each has a page, which says what happened, why, and what to do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[$doc])+ $name,)+
        }

        impl Code {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The code as it is shown.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => concat!("OW", $code),)+
                }
            }

            /// The page, as Markdown.
            #[must_use]
            pub const fn page(self) -> &'static str {
                match self {
                    $(Self::$name => include_str!(concat!(
                        "../../../docs/errors/OW", $code, ".md"
                    )),)+
                }
            }
        }
    };
}

codes! {
    /// The configuration file cannot be read.
    ConfigMissing = "1001",
    /// The configuration has faults.
    ConfigFaults = "1002",
    /// A secret cannot be read.
    Secret = "1003",
    /// An address names no store.
    StoreUrl = "1004",
    /// The store cannot be reached.
    StoreUnavailable = "1005",
    /// The store answered with an error.
    StoreFailed = "1006",
    /// The store's tables are missing or too old.
    SchemaBehind = "1007",
    /// The store's tables were made by a newer program.
    SchemaAhead = "1008",
    /// The database is a restored or copied one.
    WrongEra = "1009",
    /// The file is not TOML.
    FaultSyntax = "1010",
    /// No setting has this name.
    FaultUnknownKey = "1011",
    /// A value of the wrong type, or none of the possible ones.
    FaultBadValue = "1012",
    /// A setting is missing.
    FaultMissingKey = "1013",
    /// Message types and subscriptions contradict one another.
    FaultContract = "1014",
    /// A push or a listener that would be open to strangers.
    FaultInsecure = "1015",
    /// Retention that would repeat effects.
    FaultRetention = "1016",
    /// A secret is written into the file.
    FaultInlineSecret = "1017",
    /// A part that this build does not have.
    FaultNotInThisBuild = "1018",
    /// The listener cannot be opened.
    Listen = "1020",
    /// The file that should be written is there already, or cannot be written.
    Output = "1021",
    /// The input cannot be read.
    Input = "1022",
    /// There is nothing of that name.
    NotFound = "1023",
    /// The store refuses a subscription as it is declared.
    Subscription = "1024",
    /// The engine could not start, or stopped.
    Engine = "1025",
    /// The HTTP endpoint refused or did not answer.
    Endpoint = "1026",
    /// Some of the input was refused.
    Partly = "1027",
    /// A broker cannot be used as it is configured.
    Broker = "1060",
    /// A broker is not fit for use.
    BrokerCheck = "1061",
    /// The examination found something that must be repaired.
    Doctor = "1028",
    /// What was watched did not end well, or not in time.
    Watch = "1029",
    /// The demo lost or doubled something, or could not run.
    Demo = "1030",
    /// Somebody acted before.
    Moved = "1040",
    /// Nobody said that it is meant, or which are meant.
    Unconfirmed = "1041",
    /// An action was done on some and not on others.
    PartlyActed = "1042",
    /// An action that is not possible.
    ActionRefused = "1043",
    /// A replay campaign was stopped before its end.
    ReplayStopped = "1050",
    /// A replay campaign came to its end, but not every message of it is done.
    ReplayPartly = "1051",
    /// The command that was to verify a canary failed.
    ReplayUnverified = "1052",
    /// A payload that its type's schema does not describe, or that is not JSON where it must be.
    PayloadInvalid = "1070",
}

/// Why a command ends with something else than success.
#[derive(Debug)]
pub struct Error {
    code: Code,
    message: String,
    exit: u8,
    faults: Vec<Fault>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error with exit status 1.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            exit: EXIT_FAILED,
            faults: Vec::new(),
            source: None,
        }
    }

    /// The faults of a configuration.
    #[must_use]
    pub fn faults(faults: Vec<Fault>) -> Self {
        let message = match faults.len() {
            1 => "the configuration has a fault".to_owned(),
            n => format!("the configuration has {n} faults"),
        };
        let mut error = Self::new(Code::ConfigFaults, message);
        error.faults = faults;
        error
    }

    /// An error of the store at `url`, which is shown without its password.
    #[must_use]
    pub fn store(url: &str, error: &StoreError) -> Self {
        let code = match error.kind() {
            StoreErrorKind::Unavailable => Code::StoreUnavailable,
            StoreErrorKind::Schema => Code::SchemaBehind,
            StoreErrorKind::WrongEra => Code::WrongEra,
            StoreErrorKind::Moved => Code::Moved,
            _ => Code::StoreFailed,
        };
        let exit = match code {
            Code::SchemaBehind => EXIT_SCHEMA,
            _ => EXIT_FAILED,
        };
        Self::new(code, format!("{error} (store {})", store_url::redact(url)))
            .with_underneath(error)
            .with_exit(exit)
    }

    /// With another exit status.
    #[must_use]
    pub fn with_exit(mut self, exit: u8) -> Self {
        self.exit = exit;
        self
    }

    /// With the error underneath.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// With a few more words, such as what was probably meant.
    #[must_use]
    pub fn with_hint(mut self, hint: &str) -> Self {
        self.message.push_str(hint);
        self
    }

    /// With the texts of what is underneath `error`, but not its own.
    fn with_underneath(mut self, error: &dyn StdError) -> Self {
        let mut next = error.source();
        while let Some(inner) = next {
            let text = inner.to_string();
            if !self.message.contains(&text) {
                self.message.push_str(": ");
                self.message.push_str(&text);
            }
            next = inner.source();
        }
        self
    }

    /// Whether the reader of the output has had enough, which is no failure.
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        let source = self.source.as_deref();
        let io = source.and_then(|source| source.downcast_ref::<std::io::Error>());
        io.is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    }

    /// The code.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }

    /// The exit status.
    #[must_use]
    pub const fn exit(&self) -> u8 {
        self.exit
    }

    /// The faults of a configuration, where that is what is wrong.
    #[must_use]
    pub fn found_faults(&self) -> &[Fault] {
        &self.faults
    }

    /// The message with everything underneath.
    #[must_use]
    pub fn full_message(&self) -> String {
        let mut text = self.message.clone();
        let mut next = self.source.as_deref().map(|source| source as &dyn StdError);
        while let Some(inner) = next {
            text.push_str(": ");
            text.push_str(&inner.to_string());
            next = inner.source();
        }
        text
    }

    /// The error as one JSON object.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let mut error = serde_json::json!({
            "code": self.code.as_str(),
            "message": self.full_message(),
        });
        if !self.faults.is_empty() {
            error["faults"] = serde_json::json!(self.faults);
        }
        serde_json::json!({ "error": error })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FaultCode;

    #[test]
    fn every_code_has_a_page_that_says_what_to_do() {
        for code in Code::ALL {
            let page = code.page();
            let name = code.as_str();
            assert!(page.starts_with(&format!("# {name}: ")), "{name}");
            for part in ["## What happened", "## Likely cause", "## What to do"] {
                assert!(page.contains(part), "{name} has no {part:?}");
            }
        }
    }

    #[test]
    fn codes_of_faults_are_codes() {
        for fault in [
            FaultCode::Syntax,
            FaultCode::Retention,
            FaultCode::NotInThisBuild,
        ] {
            assert!(Code::ALL.iter().any(|code| code.as_str() == fault.as_str()));
        }
    }

    #[test]
    fn a_store_that_is_away_is_named_without_its_password() {
        let io = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let away = StoreError::new(StoreErrorKind::Unavailable, "connect", io);
        let error = Error::store("postgres://app:hunter2@db/app", &away);
        let shown = error.full_message();
        assert_eq!(error.code(), Code::StoreUnavailable);
        assert!(
            shown.contains("could not connect") && shown.contains("db/app"),
            "{shown}"
        );
        assert!(
            shown.contains("connection refused") && !shown.contains("hunter2"),
            "{shown}"
        );
    }
}
