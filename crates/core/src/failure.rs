//! How work fails, as data.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::envelope::Envelope;
use crate::sensitivity::Sensitivity;

/// What kind of failure it was; decides what happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Class {
    /// May pass: deferred with backoff, within the budget.
    Transient,
    /// The other side named a window: deferred to it, no attempt is burnt.
    RateLimited,
    /// Will never pass: quarantined at once.
    Permanent,
    /// The message cannot be read under today's schema: quarantined at once.
    Schema,
    /// A business outcome: what the handler wrote stays and commits with the reason.
    Rejected,
    /// The effect may have happened: probed before any new attempt, else quarantined.
    Ambiguous,
    /// Needs a person: deferred without a due time, holding its key.
    Operator,
}

impl Class {
    /// The name used in tables, JSON and commands.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::RateLimited => "rate-limited",
            Self::Permanent => "permanent",
            Self::Schema => "schema",
            Self::Rejected => "rejected",
            Self::Ambiguous => "ambiguous",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text names no failure class.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no failure class is called {0:?}")]
pub struct UnknownClass(String);

impl FromStr for Class {
    type Err = UnknownClass;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [
            Self::Transient,
            Self::RateLimited,
            Self::Permanent,
            Self::Schema,
            Self::Rejected,
            Self::Ambiguous,
            Self::Operator,
        ]
        .into_iter()
        .find(|class| class.as_str() == text)
        .ok_or_else(|| UnknownClass(text.to_owned()))
    }
}

/// Why a handler did not succeed.
///
/// It deliberately does not implement `Error`, so that `?` turns any error into a failure; such a
/// failure has no class yet, and the store classifies its own errors by looking at the source
/// (see [`Failure::source_ref`]). What stays unclassified is transient.
pub struct Failure {
    class: Option<Class>,
    code: Cow<'static, str>,
    message: String,
    retry_after_ms: Option<u64>,
    is_outage: bool,
    outcome: Option<Box<str>>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Failure {
    /// A failure of `class` with a short stable `code` and a text for people.
    ///
    /// Keep payload data out of the text: it is shown to operators.
    pub fn new(
        class: Class,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            class: Some(class),
            code: code.into(),
            message: message.into(),
            retry_after_ms: None,
            is_outage: false,
            outcome: None,
            source: None,
        }
    }

    /// May pass later.
    pub fn transient(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(Class::Transient, code, message)
    }

    /// What the handler depends on was not there at all (refused, not found, not started): no
    /// message could have fared better, and nothing was done. It is tried again for as long as it
    /// takes and uses nothing of the budget; never say so of what the message may have caused.
    pub fn unavailable(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            is_outage: true,
            ..Self::transient(code, message)
        }
    }

    /// Will never pass.
    pub fn permanent(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(Class::Permanent, code, message)
    }

    /// A final business answer; `outcome` is kept with the ledger row and returned on redelivery.
    pub fn rejected(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(Class::Rejected, code, message)
    }

    /// The effect may or may not have happened.
    pub fn ambiguous(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(Class::Ambiguous, code, message)
    }

    /// A person has to act first.
    pub fn operator(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(Class::Operator, code, message)
    }

    /// The other side asks to wait `retry_after_ms` milliseconds.
    pub fn rate_limited(retry_after_ms: u64, message: impl Into<String>) -> Self {
        let mut failure = Self::new(Class::RateLimited, "rate_limited", message);
        failure.retry_after_ms = Some(retry_after_ms);
        failure
    }

    /// Adds a wait that the other side asked for, in milliseconds.
    #[must_use]
    pub fn with_retry_after_ms(mut self, retry_after_ms: u64) -> Self {
        self.retry_after_ms = Some(retry_after_ms);
        self
    }

    /// Adds a JSON text that is stored as the result of a rejection.
    #[must_use]
    pub fn with_outcome(mut self, outcome: impl Into<Box<str>>) -> Self {
        self.outcome = Some(outcome.into());
        self
    }

    /// Adds the error underneath.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Gives a failure that came from `?` its class and code; a class already set stays.
    #[must_use]
    pub fn classified(mut self, class: Class, code: impl Into<Cow<'static, str>>) -> Self {
        if self.class.is_none() {
            self.class = Some(class);
            self.code = code.into();
        }
        self
    }

    /// The class; transient where nobody gave one.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class.unwrap_or(Class::Transient)
    }

    /// Whether a class was given.
    #[must_use]
    pub const fn is_classified(&self) -> bool {
        self.class.is_some()
    }

    /// Short stable code.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Text for people.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The wait the other side asked for, in milliseconds.
    #[must_use]
    pub const fn retry_after_ms(&self) -> Option<u64> {
        self.retry_after_ms
    }

    /// Whether what the handler depends on was not there at all.
    #[must_use]
    pub const fn is_outage(&self) -> bool {
        self.is_outage
    }

    /// The JSON text to keep as the result of a rejection.
    #[must_use]
    pub fn outcome(&self) -> Option<&str> {
        self.outcome.as_deref()
    }

    /// The error underneath, for the store to classify.
    #[must_use]
    pub fn source_ref(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.source.as_deref()
    }

    /// The same failure for another message, without the error underneath, which is only told once.
    #[must_use]
    pub fn alike(&self) -> Self {
        Self {
            class: self.class,
            code: self.code.clone(),
            message: self.message.clone(),
            retry_after_ms: self.retry_after_ms,
            is_outage: self.is_outage,
            outcome: self.outcome.clone(),
            source: None,
        }
    }

    /// What is stored of this failure.
    #[must_use]
    pub fn record(&self) -> FailureRecord {
        FailureRecord {
            class: self.class(),
            code: self.code.clone().into_owned(),
            message: self.message.clone(),
            detail: self.source.as_ref().map(|source| describe(source.as_ref())),
        }
    }
}

/// An error with everything underneath it, outermost first.
fn describe(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(inner) = next {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        next = inner.source();
    }
    text
}

impl<E: StdError + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self {
            class: None,
            code: Cow::Borrowed("unclassified"),
            message: "the handler returned an error".to_owned(),
            retry_after_ms: None,
            is_outage: false,
            outcome: None,
            source: Some(Box::new(error)),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.class(), self.code, self.message)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("class", &self.class)
            .field("code", &self.code)
            .field("message", &self.message)
            .field("retry_after_ms", &self.retry_after_ms)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// A failure as it is kept: in a deferral, a case, a status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureRecord {
    /// The class.
    pub class: Class,
    /// Short stable code.
    pub code: String,
    /// Text for people; free of payload data.
    pub message: String,
    /// The error underneath. May quote payload data, so it is withheld like a payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl FailureRecord {
    /// The same with what is sensitive of its message's payload taken out of the text for people.
    #[must_use]
    pub fn scrubbed(mut self, envelope: &Envelope, sensitivity: &Sensitivity) -> Self {
        let open = envelope.open_values();
        self.message = sensitivity.scrubbed(&self.message, &envelope.payload, &open);
        self
    }

    /// The same with its texts cut to `bytes_max` each, at a character's border.
    #[must_use]
    pub fn cut(mut self, bytes_max: usize) -> Self {
        for text in [Some(&mut self.message), self.detail.as_mut()]
            .into_iter()
            .flatten()
        {
            if text.len() > bytes_max {
                let end = (0..=bytes_max)
                    .rev()
                    .find(|i| text.is_char_boundary(*i))
                    .unwrap_or(0);
                text.truncate(end);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_error_becomes_an_unclassified_failure() {
        fn handler() -> Result<(), Failure> {
            "x".parse::<u32>()?;
            Ok(())
        }
        let failure = handler().unwrap_err();
        assert!(!failure.is_classified());
        assert_eq!(failure.class(), Class::Transient);
        assert!(
            failure
                .source_ref()
                .unwrap()
                .is::<std::num::ParseIntError>()
        );
        let failure = failure.classified(Class::Permanent, "constraint");
        assert_eq!(
            (failure.class(), failure.code()),
            (Class::Permanent, "constraint")
        );
        assert_eq!(failure.classified(Class::Schema, "x").code(), "constraint");
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let record = Failure::permanent("x", "é".repeat(10)).record().cut(5);
        assert_eq!(record.message, "éé");
    }

    #[test]
    fn classes_read_back_from_their_names() {
        for class in [Class::Transient, Class::RateLimited, Class::Ambiguous] {
            assert_eq!(class.as_str().parse::<Class>().unwrap(), class);
        }
        assert!("fatal".parse::<Class>().is_err());
    }
}
