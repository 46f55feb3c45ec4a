//! A fault in a configuration file, with its place.

use std::fmt;
use std::ops::Range;

use serde::Serialize;

/// What kind of fault; each has a page under `docs/errors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultCode {
    /// The text is not TOML.
    Syntax,
    /// No setting has this name here.
    UnknownKey,
    /// The value has the wrong type or is none of the possible ones.
    BadValue,
    /// A setting that must be there is not.
    MissingKey,
    /// Message types and subscriptions contradict one another.
    Contract,
    /// A push or a listener that would be open to strangers.
    Insecure,
    /// Something would be forgotten while it may still come again.
    Retention,
    /// A secret is written into the file.
    InlineSecret,
    /// A part that this build does not have.
    NotInThisBuild,
}

impl FaultCode {
    /// The stable code, which names the page.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Syntax => "OW1010",
            Self::UnknownKey => "OW1011",
            Self::BadValue => "OW1012",
            Self::MissingKey => "OW1013",
            Self::Contract => "OW1014",
            Self::Insecure => "OW1015",
            Self::Retention => "OW1016",
            Self::InlineSecret => "OW1017",
            Self::NotInThisBuild => "OW1018",
        }
    }
}

impl Serialize for FaultCode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A fault, shown as `file:line:column: what is wrong and what would be right [code]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Code.
    pub code: FaultCode,
    /// The file as it was named.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, line, column) = (&self.file, self.line, self.column);
        let (message, code) = (&self.message, self.code.as_str());
        write!(f, "{file}:{line}:{column}: {message} [{code}]")
    }
}

/// A fault before its byte range is turned into line and column.
#[derive(Clone, Debug)]
pub(super) struct RawFault {
    pub(super) code: FaultCode,
    pub(super) place: Range<usize>,
    pub(super) message: String,
}

/// Turns byte ranges into lines and columns, in one pass: there may be as many faults as lines.
/// The faults are in the order of their places.
pub(super) fn locate(faults: Vec<RawFault>, file: &str, text: &str) -> Vec<Fault> {
    let (mut at, mut line, mut column) = (0, 1, 1);
    let located = faults.into_iter().map(|fault| {
        let mut start = fault.place.start.min(text.len());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        let between = text.get(at..start).unwrap_or_default();
        match between.rfind('\n') {
            Some(end) => {
                line += between.matches('\n').count();
                column = between[end + 1..].chars().count() + 1;
            }
            None => column += between.chars().count(),
        }
        at = at.max(start);
        Fault {
            code: fault.code,
            file: file.to_owned(),
            line,
            column,
            message: fault.message,
        }
    });
    located.collect()
}
