//! Where something sensitive is: a JSON Pointer (RFC 6901), in which `*` stands for any member or
//! element.

use std::fmt;
use std::str::FromStr;

/// A place in a payload, or many: `/customer/name`, `/items/*/card`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    steps: Vec<String>,
}

/// A text that is no pointer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no JSON Pointer: it is empty or begins with a slash, such as /customer/name or \
     /items/*/card, with ~0 for ~ and ~1 for / in names"
)]
pub struct BadPointer(String);

impl Pointer {
    pub(super) fn steps(&self) -> &[String] {
        &self.steps
    }
}

impl FromStr for Pointer {
    type Err = BadPointer;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadPointer(text.to_owned());
        if text.is_empty() {
            return Ok(Self { steps: Vec::new() });
        }
        let steps = text.strip_prefix('/').ok_or_else(bad)?.split('/');
        let steps: Option<Vec<String>> = steps.map(unescaped).collect();
        let steps = steps.ok_or_else(bad)?;
        Ok(Self { steps })
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps
            .iter()
            .try_for_each(|step| write!(f, "/{}", escaped(step)))
    }
}

/// A name as a step of a pointer.
pub(super) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn unescaped(step: &str) -> Option<String> {
    let mut parts = step.split('~');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (sign, rest) = match part.as_bytes().first() {
            Some(b'0') => ('~', &part[1..]),
            Some(b'1') => ('/', &part[1..]),
            _ => return None,
        };
        name.push(sign);
        name.push_str(rest);
    }
    Some(name)
}
