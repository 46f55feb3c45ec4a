//! What is wrong with an event, and where.

use std::fmt::{self, Write as _};

/// What kind of fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// Not well-formed JSON, or not the JSON shape of an event.
    Syntax,
    /// An attribute is given twice.
    Duplicate,
    /// A required attribute is absent or empty.
    Missing,
    /// A name that no attribute can have.
    BadName,
    /// A value that the attribute cannot have.
    BadValue,
    /// A `specversion` other than 1.0.
    UnsupportedVersion,
    /// Bytes that are not UTF-8, or broken percent-encoding.
    Encoding,
    /// Longer than what can be kept.
    TooLong,
    /// JSON nested too deeply.
    TooDeep,
    /// The data contradict the content type, or are given twice.
    Data,
}

/// Where a fault is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a JSON document: an RFC 6901 pointer; empty for the whole document.
    Pointer(String),
    /// In a header of a binary-mode message.
    Header(String),
    /// In the body of a binary-mode message.
    Body,
}

impl Place {
    /// The RFC 6901 pointer, where the place is in a JSON document.
    #[must_use]
    pub fn pointer(&self) -> Option<&str> {
        match self {
            Self::Pointer(pointer) => Some(pointer),
            Self::Header(_) | Self::Body => None,
        }
    }
}

/// On one line and without control characters, whatever a sender made part of a name.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pointer(pointer) if pointer.is_empty() => f.write_str("the document"),
            Self::Pointer(pointer) => plain(f, pointer),
            Self::Header(name) => {
                f.write_str("header ")?;
                plain(f, name)
            }
            Self::Body => f.write_str("the body"),
        }
    }
}

fn plain(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for c in text.chars() {
        match c.is_control() {
            true => write!(f, "{}", c.escape_default())?,
            false => f.write_char(c)?,
        }
    }
    Ok(())
}

/// An event that was refused. The text never quotes data or values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct EventFault {
    /// What kind.
    pub kind: FaultKind,
    /// Where.
    pub place: Place,
    /// Which event of a batch, from 0.
    pub index: Option<usize>,
    /// What is wrong and what would be right.
    pub message: String,
}

/// How an event is laid out, to name places in it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Layout {
    Binary,
    Properties,
    Structured,
    InBatch(usize),
}

impl Layout {
    /// A fault at an attribute, `data` or `data_base64`; an empty name means the event itself.
    pub(super) fn fault(
        self,
        kind: FaultKind,
        name: &str,
        message: impl Into<String>,
    ) -> EventFault {
        EventFault {
            kind,
            place: self.place(name),
            index: match self {
                Self::InBatch(index) => Some(index),
                Self::Binary | Self::Properties | Self::Structured => None,
            },
            message: message.into(),
        }
    }

    fn place(self, name: &str) -> Place {
        match self {
            Self::Binary => match name {
                "" | "data" | "data_base64" => Place::Body,
                "datacontenttype" => Place::Header("content-type".to_owned()),
                _ => Place::Header(format!("ce-{name}")),
            },
            Self::Properties => match name {
                "" | "data" | "data_base64" => Place::Body,
                "datacontenttype" => Place::Header("content-type".to_owned()),
                _ => Place::Header(format!("{}{name}", super::PROPERTY_PREFIX)),
            },
            Self::Structured => Place::Pointer(step(name)),
            Self::InBatch(index) => Place::Pointer(format!("/{index}{}", step(name))),
        }
    }
}

fn step(name: &str) -> String {
    if name.is_empty() {
        return String::new();
    }
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}
