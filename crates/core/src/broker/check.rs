//! What a look at a broker finds.

/// What to look at.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    /// Topics that messages will be published to.
    pub topics: &'a [String],
    /// Longest wait for each answer, in milliseconds.
    pub timeout_ms: u64,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at, as a few words: `connection`, `stream orders`.
    pub what: String,
    /// How it stands, or what is wrong.
    pub says: String,
    /// What to do about it; none where it is well.
    pub remedy: Option<String>,
}

impl Finding {
    /// It is well.
    pub fn good(what: impl Into<String>, says: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            says: says.into(),
            remedy: None,
        }
    }

    /// It is not, and what would help.
    pub fn bad(
        what: impl Into<String>,
        says: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            what: what.into(),
            says: says.into(),
            remedy: Some(remedy.into()),
        }
    }

    /// Whether it is well.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.remedy.is_none()
    }
}
