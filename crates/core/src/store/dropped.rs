//! Messages that a policy gave up, as the ledger has them.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::ledger::Ending;
use crate::merge::survivor_in;
use crate::timestamp::Timestamp;

/// Asks for messages that a policy gave up, the latest first.
#[derive(Clone, Debug)]
pub struct DroppedQuery<'a> {
    /// Subscription.
    pub subscription: &'a str,
    /// Which; those of [`Ending::DROPPED`].
    pub endings: &'a [Ending],
    /// Only those behind this one.
    pub after: Option<&'a DroppedPlace>,
    /// Most rows to return.
    pub rows_max: u32,
}

/// A message that a policy gave up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// How.
    #[serde(rename = "outcome")]
    pub ending: Ending,
    /// Where it stands among the others.
    #[serde(flatten)]
    pub place: DroppedPlace,
    /// The id of the message that was handled in its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged_into: Option<String>,
}

impl Dropped {
    /// From a row of the ledger.
    #[must_use]
    pub fn of(ending: Ending, place: DroppedPlace, result: Option<&str>) -> Self {
        let merged_into = result.and_then(survivor_in);
        Self {
            ending,
            place,
            merged_into: merged_into.filter(|_| ending == Ending::Merged),
        }
    }

    /// Puts the latest first, and keeps as many as were asked for.
    #[must_use]
    pub fn latest(mut rows: Vec<Self>, rows_max: u32) -> Vec<Self> {
        rows.sort_by(|a, b| b.place.cmp(&a.place));
        rows.truncate(rows_max as usize);
        rows
    }
}

/// A place in the list of what was given up: the time and the rest of the ledger's key. As text it
/// is a cursor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DroppedPlace {
    /// When it was given up.
    pub finished_at: Timestamp,
    /// Source of the message.
    pub source: String,
    /// Its type.
    #[serde(rename = "type")]
    pub message_type: String,
    /// What identifies it in its subscription: the message id, or the operation.
    pub identity: String,
    /// 0 but for a deliberate rerun.
    pub generation: u32,
}

impl fmt::Display for DroppedPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        f.write_str(&URL_SAFE_NO_PAD.encode(text))
    }
}

/// A text that is no cursor of a list of what was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a cursor from an earlier page of the same list")]
pub struct NoCursor;

impl FromStr for DroppedPlace {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| NoCursor)?;
        serde_json::from_slice(&bytes).map_err(|_| NoCursor)
    }
}

/// Asks how many messages policies gave up of late.
#[derive(Clone, Copy, Debug)]
pub struct DropCountQuery<'a> {
    /// Subscription.
    pub subscription: &'a str,
    /// Where to stop counting, for each ending and time.
    pub count_max: u64,
}

/// How many messages ended in one of these ways of late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DropCount {
    /// How.
    #[serde(rename = "outcome")]
    pub ending: Ending,
    /// In the last hour.
    pub last_hour: u64,
    /// In the last 24 hours.
    pub last_day: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was() {
        let place = DroppedPlace {
            finished_at: Timestamp::from_micros(1_700_000_000_123_456),
            source: "//a b".into(),
            message_type: "price.changed".into(),
            identity: "m\"ü\n1".into(),
            generation: 3,
        };
        assert_eq!(place.to_string().parse(), Ok(place.clone()));
        for text in ["", "x", "e30", "*", &format!("{place}=")] {
            assert_eq!(text.parse::<DroppedPlace>(), Err(NoCursor), "{text}");
        }
    }
}
