//! Instants.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// An instant: `i64` nanoseconds since the Unix epoch, the value that Arrow's `Timestamp(ns)` holds.
///
/// Every `i64` is a valid stamp (1677 to 2262); zero is an ordinary time. A `Stamp` parses
/// from the absolute forms of the command line and prints as RFC 3339 in UTC. RFC 3339 without an offset is
/// UTC, a day is its midnight; an integer is seconds, or nanoseconds if it is past the last second that a stamp can hold:
///
/// ```
/// use asof_core::Stamp;
///
/// let t = Stamp::from_nanos(1_700_000_000_250_000_000);
/// assert_eq!("2023-11-14T22:13:20.25Z".parse(), Ok(t));
/// assert_eq!("1700000000.25".parse(), Ok(t));
/// assert_eq!("2023-11-14".parse(), "2023-11-14T00:00:00Z".parse::<Stamp>());
/// assert_eq!("1700000000250000000ns".parse(), Ok(t));
/// assert_eq!("1700000000250000000".parse(), Ok(t));
/// assert_eq!(t.to_string(), "2023-11-14T22:13:20.25Z");
/// assert_eq!(t.as_seconds_text(), "1700000000.250000000");
/// assert_eq!(t.as_nanos_text(), "1700000000250000000ns");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Stamp(i64);

/// Why something is not a [`Stamp`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StampError {
    /// An unsigned time, as MCAP stores it, past what 63 bits can hold.
    #[error("time {0} ns is past the year 2262, the last that asof can hold")]
    TooLate(u64),
    /// A time that does not fit the range of 1677 to 2262.
    #[error("time '{0}' is outside of the years 1677 to 2262")]
    OutOfRange(String),
    /// A ROS time whose nanosecond part is a second or more.
    #[error("time has {0} nanoseconds in its fraction, which must be below 1000000000")]
    BadFraction(u32),
    /// Text that matches none of the supported forms.
    #[error(
        "'{0}' is not a time: use RFC 3339 (2024-05-01T12:00:00Z), seconds since the epoch (1714564800.5), \
         nanoseconds (1714564800500000000ns), or relative to the recording (+12.5s, -3s)"
    )]
    Unreadable(String),
}

impl Stamp {
    /// The earliest instant.
    pub const MIN: Stamp = Stamp(i64::MIN);
    /// The latest instant.
    pub const MAX: Stamp = Stamp(i64::MAX);
    /// The Unix epoch. An ordinary time, never a sentinel for "none".
    pub const EPOCH: Stamp = Stamp(0);

    /// The instant `nanos` nanoseconds after the Unix epoch.
    pub const fn from_nanos(nanos: i64) -> Self {
        Stamp(nanos)
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// From MCAP's unsigned nanoseconds.
    ///
    /// # Errors
    /// [`StampError::TooLate`] for times past 2262: they are reported, never wrapped.
    pub const fn from_unsigned_nanos(nanos: u64) -> Result<Self, StampError> {
        if nanos > i64::MAX as u64 {
            return Err(StampError::TooLate(nanos));
        }
        Ok(Stamp(nanos as i64))
    }

    /// MCAP's unsigned nanoseconds; `None` before 1970.
    pub const fn to_unsigned_nanos(self) -> Option<u64> {
        if self.0 < 0 {
            None
        } else {
            Some(self.0 as u64)
        }
    }

    /// From ROS 1's `time`: unsigned seconds and nanoseconds.
    ///
    /// # Errors
    /// [`StampError::BadFraction`] when `nsec` is a second or more.
    pub const fn from_ros1(sec: u32, nsec: u32) -> Result<Self, StampError> {
        if nsec >= NANOS_PER_SECOND as u32 {
            return Err(StampError::BadFraction(nsec));
        }
        Ok(Stamp(sec as i64 * NANOS_PER_SECOND + nsec as i64))
    }

    /// From ROS 2's `builtin_interfaces/Time`: signed seconds and unsigned nanoseconds.
    ///
    /// # Errors
    /// [`StampError::BadFraction`] when `nanosec` is a second or more.
    pub const fn from_ros2(sec: i32, nanosec: u32) -> Result<Self, StampError> {
        if nanosec >= NANOS_PER_SECOND as u32 {
            return Err(StampError::BadFraction(nanosec));
        }
        Ok(Stamp(sec as i64 * NANOS_PER_SECOND + nanosec as i64))
    }

    /// Seconds and nanoseconds as in ROS 2; `None` when they do not fit its 32 bits.
    pub const fn to_ros2(self) -> Option<(i32, u32)> {
        let sec = self.0.div_euclid(NANOS_PER_SECOND);
        if sec < i32::MIN as i64 || sec > i32::MAX as i64 {
            return None;
        }
        Some((sec as i32, self.0.rem_euclid(NANOS_PER_SECOND) as u32))
    }

    /// Nanoseconds from `earlier` to `self`, negative if `earlier` is later; saturates.
    pub const fn since(self, earlier: Stamp) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The instant `nanos` nanoseconds later (earlier if negative); saturates.
    #[must_use]
    pub const fn plus_nanos(self, nanos: i64) -> Stamp {
        Stamp(self.0.saturating_add(nanos))
    }

    /// The current time of this machine's clock.
    ///
    /// Call it at the edges of a program. Everything below takes times as arguments, so that it can be tested and
    /// replayed.
    pub fn now() -> Self {
        Stamp::try_from(SystemTime::now()).unwrap_or(Stamp::MAX)
    }

    /// The instant `seconds` after the epoch, rounded to nanoseconds as precisely as a float allows; saturates, and NaN
    /// is the epoch.
    ///
    /// ```
    /// use asof_core::Stamp;
    /// assert_eq!(Stamp::from_seconds(1.5), Stamp::from_nanos(1_500_000_000));
    /// assert_eq!(Stamp::from_nanos(-250_000_000).seconds(), -0.25);
    /// ```
    pub fn from_seconds(seconds: f64) -> Self {
        // Whole and fraction apart: beside years, a float has no digits left for nanoseconds.
        let whole = seconds.trunc();
        let fraction = ((seconds - whole) * 1e9).round() as i64;
        Stamp((whole as i64).saturating_mul(NANOS_PER_SECOND)).plus_nanos(fraction)
    }

    /// Seconds since the epoch, as a float. For times of today its resolution is 0.3 microseconds.
    pub fn seconds(self) -> f64 {
        let whole = self.0.div_euclid(NANOS_PER_SECOND) as f64;
        whole + self.0.rem_euclid(NANOS_PER_SECOND) as f64 * 1e-9
    }

    /// The time since `earlier`; zero if `earlier` is later.
    ///
    /// ```
    /// use std::time::Duration;
    /// use asof_core::Stamp;
    /// let (start, end) = (Stamp::from_seconds(1.0), Stamp::from_seconds(3.5));
    /// assert_eq!(end.duration_since(start), Duration::from_millis(2500));
    /// assert_eq!(start.duration_since(end), Duration::ZERO);
    /// ```
    pub const fn duration_since(self, earlier: Stamp) -> Duration {
        let nanos = self.0 as i128 - earlier.0 as i128;
        if nanos < 0 {
            Duration::ZERO
        } else {
            Duration::from_nanos(nanos as u64)
        }
    }

    /// Decimal seconds since the epoch, nine digits of fraction: `1700000000.250000000`.
    pub fn as_seconds_text(self) -> String {
        let magnitude = self.0.unsigned_abs();
        let (seconds, fraction) = (magnitude / 1_000_000_000, magnitude % 1_000_000_000);
        let sign = if self.0 < 0 { "-" } else { "" };
        format!("{sign}{seconds}.{fraction:09}")
    }

    /// Integer nanoseconds with their unit: `1700000000250000000ns`.
    pub fn as_nanos_text(self) -> String {
        format!("{}ns", self.0)
    }

    fn from_wide(nanos: i128, text: impl fmt::Display) -> Result<Self, StampError> {
        i64::try_from(nanos)
            .map(Stamp)
            .map_err(|_| StampError::OutOfRange(text.to_string()))
    }
}

/// Saturates at the latest instant.
impl Add<Duration> for Stamp {
    type Output = Stamp;

    fn add(self, duration: Duration) -> Stamp {
        self.plus_nanos(clamped_nanos(duration))
    }
}

/// Saturates at the earliest instant.
impl Sub<Duration> for Stamp {
    type Output = Stamp;

    fn sub(self, duration: Duration) -> Stamp {
        self.plus_nanos(-clamped_nanos(duration))
    }
}

impl AddAssign<Duration> for Stamp {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl SubAssign<Duration> for Stamp {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

fn clamped_nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

impl From<i64> for Stamp {
    fn from(nanos: i64) -> Self {
        Stamp(nanos)
    }
}

impl From<Stamp> for i64 {
    fn from(stamp: Stamp) -> Self {
        stamp.0
    }
}

impl TryFrom<SystemTime> for Stamp {
    type Error = StampError;

    fn try_from(time: SystemTime) -> Result<Self, StampError> {
        let nanos = match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => after.as_nanos() as i128,
            Err(before) => -(before.duration().as_nanos() as i128),
        };
        Stamp::from_wide(nanos, format_args!("{nanos}ns"))
    }
}

impl From<Stamp> for SystemTime {
    fn from(stamp: Stamp) -> Self {
        let distance = Duration::from_nanos(stamp.0.unsigned_abs());
        if stamp.0 < 0 {
            SystemTime::UNIX_EPOCH - distance
        } else {
            SystemTime::UNIX_EPOCH + distance
        }
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Timestamp::from_nanosecond(self.0 as i128) {
            Ok(timestamp) => timestamp.fmt(f),
            Err(_) => f.write_str(&self.as_nanos_text()),
        }
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stamp({})", self.0)
    }
}

impl FromStr for Stamp {
    type Err = StampError;

    fn from_str(text: &str) -> Result<Self, StampError> {
        let text = text.trim();
        let unreadable = || StampError::Unreadable(text.to_owned());
        if let Some(digits) = text.strip_suffix("ns") {
            return parse_integer(digits)
                .ok_or_else(unreadable)
                .and_then(|n| Stamp::from_wide(n, text));
        }
        if let Some(nanos) = parse_decimal_seconds(text) {
            // No second is that late, so it means nanoseconds: asof itself prints times for programs that way.
            return Stamp::from_wide(nanos, text).or_else(|error| {
                let nanos = parse_integer(text).ok_or(error)?;
                Stamp::from_wide(nanos, text)
            });
        }
        let timestamp = match text.parse::<Timestamp>() {
            Ok(timestamp) => timestamp,
            // A day begins at midnight.
            Err(_) if text.contains([':']) || is_day(text) => text
                .parse::<DateTime>()
                .and_then(|civil| civil.to_zoned(TimeZone::UTC))
                .map_err(|_| unreadable())?
                .timestamp(),
            Err(_) => return Err(unreadable()),
        };
        Stamp::from_wide(timestamp.as_nanosecond(), text)
    }
}

/// Whether it is a day: `2024-05-01`.
fn is_day(text: &str) -> bool {
    let is_in_place = |(place, byte): (usize, u8)| match place {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    text.len() == 10 && text.bytes().enumerate().all(is_in_place)
}

/// Optional minus and up to 30 digits: enough to tell "out of range" from "not a number".
fn parse_integer(text: &str) -> Option<i128> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = (1..=30).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    if is_plain { text.parse().ok() } else { None }
}

/// Exact: the text becomes nanoseconds without passing through a float. Digits after the ninth are below the
/// resolution of a stamp and are cut off.
fn parse_decimal_seconds(text: &str) -> Option<i128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds = parse_integer(whole)?;
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut nanos: i128 = 0;
    for digit in fraction.bytes().chain(std::iter::repeat(b'0')).take(9) {
        nanos = nanos * 10 + i128::from(digit - b'0');
    }
    let magnitude = seconds
        .checked_abs()?
        .checked_mul(NANOS_PER_SECOND as i128)?
        .checked_add(nanos)?;
    Some(if text.starts_with('-') {
        -magnitude
    } else {
        magnitude
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_time_past_63_bits_is_reported_not_wrapped() {
        assert_eq!(
            Stamp::from_unsigned_nanos(u64::MAX),
            Err(StampError::TooLate(u64::MAX))
        );
        assert_eq!(Stamp::from_unsigned_nanos(i64::MAX as u64), Ok(Stamp::MAX));
    }

    #[test]
    fn ros_times_convert_and_a_bad_fraction_is_refused() {
        assert_eq!(Stamp::from_ros1(1, 5), Ok(Stamp(1_000_000_005)));
        assert_eq!(
            Stamp::from_ros1(u32::MAX, 999_999_999).map(Stamp::nanos),
            Ok(4_294_967_295_999_999_999)
        );
        assert_eq!(Stamp::from_ros2(-1, 500_000_000), Ok(Stamp(-500_000_000)));
        assert_eq!(Stamp(-500_000_000).to_ros2(), Some((-1, 500_000_000)));
        assert_eq!(
            Stamp::from_ros2(0, 1_000_000_000),
            Err(StampError::BadFraction(1_000_000_000))
        );
    }

    #[test]
    fn offsets_and_spaces_of_rfc_3339_are_read() {
        assert_eq!("1970-01-01T02:00:00+02:00".parse(), Ok(Stamp::EPOCH));
        assert_eq!("1970-01-01 00:00:01Z".parse(), Ok(Stamp(1_000_000_000)));
    }

    #[test]
    fn what_is_printed_for_programs_and_without_an_offset_is_read_back() {
        let at = Stamp(1_714_564_810_500_000_000);
        assert_eq!("1714564810500000000".parse(), Ok(at));
        assert_eq!("-1714564810500000000".parse(), Ok(Stamp(-at.0)));
        assert_eq!("2024-05-01T12:00:10.5".parse(), Ok(at));
        assert_eq!("2024-05-01 12:00:10.5".parse(), Ok(at));
        // What can be seconds is seconds, up to the last that there is.
        assert_eq!("9223372036".parse(), Ok(Stamp(9_223_372_036_000_000_000)));
        assert_eq!("9223372037".parse(), Ok(Stamp(9_223_372_037)));
        for text in [
            "12:00:10",
            "2024-05-01T12:00:10 Europe/Berlin",
            "2024-13-01T00:00:00",
        ] {
            assert!(text.parse::<Stamp>().is_err(), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_time_says_which_forms_there_are() {
        for text in [
            "",
            "ns",
            "yesterday",
            "1.2.3",
            "--5",
            "1e9",
            "1970-13-01",
            "1970-1-1",
            "0x10ns",
            ".",
            "5s",
        ] {
            let error = text.parse::<Stamp>().expect_err(text);
            assert!(error.to_string().contains("RFC 3339"), "{text}: {error}");
        }
        let far = "99999999999999999999"
            .parse::<Stamp>()
            .expect_err("too far");
        assert!(matches!(far, StampError::OutOfRange(_)));
    }

    #[test]
    fn durations_are_added_and_held_at_the_ends_of_time() {
        let second = Duration::from_secs(1);
        let mut stamp = Stamp::EPOCH + second;
        assert_eq!(stamp, Stamp(1_000_000_000));
        stamp -= second;
        stamp -= second;
        assert_eq!(stamp, Stamp(-1_000_000_000));
        assert_eq!(Stamp::MAX + Duration::MAX, Stamp::MAX);
        assert_eq!(Stamp::MIN - second, Stamp::MIN);
        assert_eq!(
            Stamp::MAX.duration_since(Stamp::MIN),
            Duration::from_nanos(u64::MAX)
        );
    }

    #[test]
    fn seconds_of_any_size_are_a_time() {
        for seconds in [f64::INFINITY, f64::MAX] {
            assert_eq!(Stamp::from_seconds(seconds), Stamp::MAX);
            assert_eq!(Stamp::from_seconds(-seconds), Stamp::MIN);
        }
        assert_eq!(Stamp::from_seconds(f64::NAN), Stamp::EPOCH);
        assert_eq!(
            Stamp::from_seconds(-0.000_000_001),
            Stamp(-1),
            "the epoch is an ordinary time"
        );
        assert!((Stamp::now().seconds() - Stamp::now().seconds()).abs() < 60.0);
    }

    #[test]
    fn system_time_round_trips_on_both_sides_of_the_epoch() {
        for nanos in [-1_500_000_000, 0, 1_700_000_000_123_456_789] {
            let there: SystemTime = Stamp(nanos).into();
            assert_eq!(Stamp::try_from(there), Ok(Stamp(nanos)));
        }
    }

    proptest! {
        #[test]
        fn every_printed_form_parses_back(nanos: i64) {
            let stamp = Stamp(nanos);
            prop_assert_eq!(stamp.to_string().parse(), Ok(stamp));
            prop_assert_eq!(stamp.as_seconds_text().parse(), Ok(stamp));
            prop_assert_eq!(stamp.as_nanos_text().parse(), Ok(stamp));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<Stamp>();
        }
    }
}
