//! Instants as users write them, absolute or relative to a recording.

use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;

use crate::{Stamp, StampError, TimeRange};

/// An instant that may be relative to a recording: `+12.5s` from its start, `-3s` from its end.
///
/// A sign makes it relative, with a unit or, without one, in seconds (`+1.5`). Anything else is an absolute [`Stamp`].
/// Write a time before 1970 as RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// An absolute instant.
    At(Stamp),
    /// Nanoseconds after the start of the recording.
    AfterStart(i64),
    /// Nanoseconds before the end of the recording.
    BeforeEnd(i64),
}

impl When {
    /// The absolute instant, in a recording that spans `range`.
    pub fn resolve(self, range: TimeRange) -> Stamp {
        match self {
            When::At(stamp) => stamp,
            When::AfterStart(nanos) => range.start.plus_nanos(nanos),
            When::BeforeEnd(nanos) => range.end.plus_nanos(nanos.saturating_neg()),
        }
    }
}

impl From<Stamp> for When {
    fn from(stamp: Stamp) -> Self {
        When::At(stamp)
    }
}

impl FromStr for When {
    type Err = StampError;

    fn from_str(text: &str) -> Result<Self, StampError> {
        let text = text.trim();
        let Some(distance) = text.strip_prefix(['+', '-']) else {
            return text.parse().map(When::At);
        };
        let unreadable = || StampError::Unreadable(text.to_owned());
        let has_unit = distance.ends_with(char::is_alphabetic);
        let nanos = if has_unit {
            let distance: SignedDuration = distance.parse().map_err(|_| unreadable())?;
            i64::try_from(distance.as_nanos())
                .map_err(|_| StampError::OutOfRange(text.to_owned()))?
        } else if distance.starts_with(|first: char| first.is_ascii_digit()) {
            distance.parse::<Stamp>().map_err(|_| unreadable())?.nanos()
        } else {
            return Err(unreadable());
        };
        if nanos < 0 {
            return Err(unreadable());
        }
        Ok(if text.starts_with('+') {
            When::AfterStart(nanos)
        } else {
            When::BeforeEnd(nanos)
        })
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            When::At(stamp) => stamp.fmt(f),
            When::AfterStart(nanos) => write!(f, "+{nanos}ns"),
            When::BeforeEnd(nanos) => write!(f, "-{nanos}ns"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn relative_times_count_from_the_ends_of_the_recording() {
        let minute = TimeRange::new(Stamp::from_nanos(100), Stamp::from_nanos(60_000_000_100));
        let at = |text: &str| text.parse::<When>().expect(text).resolve(minute).nanos();
        assert_eq!(at("+12.5s"), 12_500_000_100);
        assert_eq!(at("-3s"), 57_000_000_100);
        assert_eq!(at("+250ms"), 250_000_100);
        assert_eq!(at("+7ns"), 107);
        assert_eq!(at("-1m30s"), -29_999_999_900);
    }

    #[test]
    fn a_signed_number_without_a_unit_is_relative_in_seconds() {
        assert_eq!("+1.5".parse(), Ok(When::AfterStart(1_500_000_000)));
        assert_eq!("-3".parse(), Ok(When::BeforeEnd(3_000_000_000)));
    }

    #[test]
    fn what_a_stamp_prints_is_absolute() {
        for nanos in [0, 1_714_564_810_500_000_000, i64::MAX, i64::MIN] {
            let stamp = Stamp::from_nanos(nanos);
            assert_eq!(stamp.to_string().parse(), Ok(When::At(stamp)));
        }
        let after = Stamp::from_nanos(1_714_564_810_500_000_000);
        for text in [
            after.as_nanos_text(),
            after.nanos().to_string(),
            after.as_seconds_text(),
        ] {
            assert_eq!(text.parse(), Ok(When::At(after)), "{text}");
        }
    }

    #[test]
    fn nonsense_is_an_error() {
        for text in ["+", "-", "+s", "+-3s", "+5 parsecs", "+é", "-éé"] {
            assert!(text.parse::<When>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[+-]?.{0,30}") {
            let _ = text.parse::<When>();
        }
    }
}
