//! Lengths of time on the command line.

use std::time::Duration;

use jiff::SignedDuration;

/// A length of time: a number of seconds, or with units, such as `10`, `500ms`, `30s`, `5m` or `1h30m`.
pub fn parse_length(text: &str) -> Result<Duration, String> {
    let explained = || "give a time, such as 10, 500ms, 30s, 5m or 1h".to_owned();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|_| explained());
    }
    let length: SignedDuration = text.parse().map_err(|_| explained())?;
    length.try_into().map_err(|_| explained())
}

/// The same, above zero and no longer than a recording can be.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let length = parse_length(text)?;
    if length.is_zero() || i64::try_from(length.as_nanos()).is_err() {
        return Err("give a time above zero, such as 10, 500ms, 30s, 5m or 1h".to_owned());
    }
    Ok(length)
}

/// The same in nanoseconds.
pub fn parse_nanos(text: &str) -> Result<i64, String> {
    let nanos = parse_time(text)?.as_nanos();
    i64::try_from(nanos).map_err(|_| "that is too long".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_a_number_of_seconds_or_has_units() {
        for (text, millis) in [
            ("10", 10_000),
            ("0.5", 500),
            ("500ms", 500),
            ("1.5s", 1500),
            ("5m", 300_000),
            ("1.5h", 5_400_000),
            ("1h30m", 5_400_000),
        ] {
            assert_eq!(
                parse_time(text),
                Ok(Duration::from_millis(millis)),
                "{text}"
            );
        }
        assert_eq!(parse_length("0"), Ok(Duration::ZERO));
        assert_eq!(parse_nanos("1ms"), Ok(1_000_000));
        for text in [
            "",
            "0",
            "0s",
            "-1m",
            "-5",
            "soon",
            "inf",
            "NaN",
            "1e300",
            "1e300h",
            "5 parsecs",
        ] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
