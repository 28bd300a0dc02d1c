//! Times of searches, which may be days.

use asof_core::Stamp;

/// A text that is neither a day nor a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a day or a time: use a day (2024-05-01), RFC 3339 (2024-05-01T12:00:00Z), \
     seconds since the epoch (1714564800.5), or nanoseconds (1714564800500000000ns)"
)]
pub struct NotADay(pub String);

/// The start of a search: a time, or a day (`2024-05-01`), which begins at midnight UTC.
///
/// # Errors
/// When the text is neither.
pub fn since(text: &str) -> Result<Stamp, NotADay> {
    at(text, "T00:00:00Z")
}

/// The end of a search, inclusive: a time, or a day, up to its end in UTC.
///
/// # Errors
/// When the text is neither.
pub fn until(text: &str) -> Result<Stamp, NotADay> {
    at(text, "T23:59:59.999999999Z")
}

fn at(text: &str, time: &str) -> Result<Stamp, NotADay> {
    let text = text.trim();
    let is_day = text.len() == 10
        && text.bytes().enumerate().all(|(place, byte)| match place {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    let time = if is_day { time } else { "" };
    let found = format!("{text}{time}").parse();
    found.map_err(|_| NotADay(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_all_of_it() {
        let (from, to) = (since("2024-05-01"), until("2024-05-01"));
        assert_eq!(from.ok(), "2024-05-01T00:00:00Z".parse().ok());
        assert_eq!(to.ok(), "2024-05-01T23:59:59.999999999Z".parse().ok());
        assert_eq!(since("1714521600"), since("2024-05-01"));
        for text in ["2024-13-01", "2024-05-1", "may", "", "+12.5s"] {
            let error = since(text).expect_err(text).to_string();
            assert!(error.contains("a day (2024-05-01)"), "{error}");
        }
    }
}
