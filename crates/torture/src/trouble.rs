//! Why a part of the torture could not go on.

use std::error::Error;
use std::fmt;

/// What could not be done, and why.
#[derive(Debug)]
pub struct Trouble {
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Trouble {
    /// Trouble without anything underneath.
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            source: None,
        }
    }
}

/// The whole story in one line.
impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        let mut next: Option<&dyn Error> = self.source.as_ref().map(|source| source.as_ref() as _);
        while let Some(error) = next {
            write!(f, ": {error}")?;
            next = error.source();
        }
        Ok(())
    }
}

impl Error for Trouble {}

/// Says what was attempted when an error came up.
pub(crate) fn while_doing<E: Into<Box<dyn Error + Send + Sync>>>(
    what: impl Into<String>,
) -> impl FnOnce(E) -> Trouble {
    let what = what.into();
    |source| Trouble {
        what,
        source: Some(source.into()),
    }
}
