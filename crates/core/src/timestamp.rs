//! A moment in time, in microseconds since the Unix epoch.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment in UTC with microsecond precision, the precision that PostgreSQL keeps.
///
/// Text form is RFC 3339 with a `Z` offset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From microseconds since the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// This moment moved by `millis`, which may be negative; saturates at the ends of time.
    #[must_use]
    pub const fn plus_millis(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis.saturating_mul(1000)))
    }

    /// Milliseconds from `earlier` to this moment; negative when `earlier` is later.
    #[must_use]
    pub const fn millis_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0) / 1000
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(stamp) => write!(f, "{stamp}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not an RFC 3339 timestamp.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an RFC 3339 timestamp: {reason}")]
pub struct ParseTimestampError {
    reason: String,
}

impl FromStr for Timestamp {
    type Err = ParseTimestampError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<jiff::Timestamp>()
            .map(|stamp| Self(stamp.as_microsecond()))
            .map_err(|error| ParseTimestampError {
                reason: error.to_string(),
            })
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trip_keeps_microseconds() {
        let stamp = Timestamp::from_micros(1_764_511_200_123_456);
        assert_eq!(stamp.to_string().parse::<Timestamp>().unwrap(), stamp);
    }

    #[test]
    fn an_offset_is_converted_to_utc() {
        let a: Timestamp = "2026-10-25T01:30:00+01:00".parse().unwrap();
        let b: Timestamp = "2026-10-25T00:30:00Z".parse().unwrap();
        assert_eq!(a, b);
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(
            Timestamp::from_micros(i64::MAX).plus_millis(1).as_micros(),
            i64::MAX
        );
        assert_eq!(
            Timestamp::from_micros(i64::MIN).millis_since(Timestamp::from_micros(1)),
            i64::MIN / 1000
        );
    }
}
