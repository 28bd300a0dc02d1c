//! Times of searches, where a day alone says enough.

use asof_core::{Stamp, StampError};

/// A time from which on something is meant: as everywhere, or a day (`2024-05-01`), which begins at midnight UTC.
///
/// # Errors
/// When the text is neither.
pub fn since(text: &str) -> Result<Stamp, StampError> {
    at(text, "T00:00:00Z")
}

/// A time until which something is meant, inclusive: as everywhere, or a day, all of it.
///
/// # Errors
/// When the text is neither.
pub fn until(text: &str) -> Result<Stamp, StampError> {
    at(text, "T23:59:59.999999999Z")
}

fn at(text: &str, time: &str) -> Result<Stamp, StampError> {
    let text = text.trim();
    let is_day = text.len() == 10
        && text.bytes().enumerate().all(|(place, byte)| match place {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    if is_day {
        // What is wrong with a day is told of the day.
        let whole = format!("{text}{time}");
        return whole
            .parse()
            .map_err(|_| StampError::Unreadable(text.to_owned()));
    }
    text.parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_all_of_it() {
        let (from, to) = (since("2024-05-01"), until("2024-05-01"));
        assert_eq!(from, "2024-05-01T00:00:00Z".parse());
        assert_eq!(to, "2024-05-01T23:59:59.999999999Z".parse());
        assert_eq!(since("1714521600"), from);
        for text in ["2024-13-01", "2024-05-1", "may", ""] {
            assert!(since(text).is_err(), "{text}");
        }
    }
}
