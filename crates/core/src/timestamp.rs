//! A moment in time, in microseconds since the Unix epoch.

use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;
use jiff::civil::{DateTime, date};
use jiff::fmt::temporal::Pieces;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The last moment that RFC 3339 can write: the end of the year 9999. Many write it for "never".
const LAST_MICROS: i64 = 253_402_300_799_999_999;

/// The Unix epoch.
const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);

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
        if let Ok(stamp) = jiff::Timestamp::from_microsecond(self.0) {
            return write!(f, "{stamp}");
        }
        // Such a stamp leaves room for every offset, so it ends before the last day does.
        match EPOCH.checked_add(SignedDuration::from_micros(self.0)) {
            Ok(stamp) if self.0 > 0 => write!(f, "{stamp}Z"),
            _ => write!(f, "{}us", self.0),
        }
    }
}

/// A moment of the last day, which no stamp of the library can hold.
fn parse_last_day(text: &str) -> Option<Timestamp> {
    let pieces = Pieces::parse(text).ok()?;
    let stamp = pieces.date().to_datetime(pieces.time()?);
    let offset = SignedDuration::from_secs(pieces.to_numeric_offset()?.seconds().into());
    let since = stamp.duration_since(EPOCH).checked_sub(offset)?;
    let micros = i64::try_from(since.as_micros()).ok()?;
    (0..=LAST_MICROS)
        .contains(&micros)
        .then_some(Timestamp(micros))
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
            .or_else(|error| {
                parse_last_day(text).ok_or_else(|| ParseTimestampError {
                    reason: error.to_string(),
                })
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
    fn the_last_day_of_all_is_a_day() {
        let last = Timestamp::from_micros(LAST_MICROS);
        assert_eq!(last.to_string(), "9999-12-31T23:59:59.999999Z");
        for (text, micros) in [
            ("9999-12-31T23:59:59.999999Z", LAST_MICROS),
            ("9999-12-31T23:59:59Z", LAST_MICROS - 999_999),
            ("9999-12-31T22:59:59-01:00", LAST_MICROS - 999_999),
            ("9999-12-30T22:00:01Z", LAST_MICROS - 93_598_999_999),
        ] {
            let parsed: Timestamp = text.parse().unwrap();
            assert_eq!(parsed.as_micros(), micros, "{text}");
            assert_eq!(parsed.to_string().parse::<Timestamp>().unwrap(), parsed);
        }
        for bad in [
            "9999-12-31T23:59:59-01:00",
            "9999-12-32T00:00:00Z",
            "9999-12-31",
            "9999-12-31T23:59:59",
            "10000-01-01T00:00:00Z",
        ] {
            assert!(bad.parse::<Timestamp>().is_err(), "{bad}");
        }
        assert_eq!(
            Timestamp::from_micros(LAST_MICROS + 1).to_string(),
            format!("{}us", LAST_MICROS + 1)
        );
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
