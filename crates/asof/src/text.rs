//! Numbers and names as people read them.

use std::borrow::Cow;
use std::path::Path;

use asof_core::Stamp;

/// `12,345,678`
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `4.2 MB`, in powers of a thousand.
pub fn bytes(count: u64) -> String {
    let mut value = count as f64;
    if count < 1000 {
        return format!("{count} B");
    }
    let mut unit = "";
    for next in ["kB", "MB", "GB", "TB", "PB", "EB"] {
        value /= 1000.0;
        unit = next;
        if value < 999.95 {
            break;
        }
    }
    format!("{value:.1} {unit}")
}

/// `12.345 s`, `3 min 5.0 s`, `1 h 2 min 3 s`
pub fn duration(nanos: i64) -> String {
    let seconds = nanos as f64 / 1e9;
    if seconds < 60.0 {
        return format!("{seconds:.3} s");
    }
    let whole = nanos / 1_000_000_000;
    let (hours, minutes) = (whole / 3600, whole / 60 % 60);
    if hours == 0 {
        let rest = (nanos - minutes * 60_000_000_000) as f64 / 1e9;
        return format!("{minutes} min {rest:.1} s");
    }
    format!("{hours} h {minutes} min {} s", whole % 60)
}

/// `1.234 s`, `3.5 min`, `2.1 h`: an age, which may be negative.
pub fn age(nanos: i64) -> String {
    let seconds = nanos as f64 * 1e-9;
    if seconds.abs() < 120.0 {
        format!("{seconds:.3} s")
    } else if seconds.abs() < 7200.0 {
        format!("{:.1} min", seconds / 60.0)
    } else {
        format!("{:.1} h", seconds / 3600.0)
    }
}

/// The first so many characters of a text, with a sign where there are more.
pub fn cut(text: &str, room: usize) -> Cow<'_, str> {
    match text.char_indices().nth(room) {
        Some((end, _)) => Cow::Owned(format!("{} …", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// `49.97`, with only significant digits.
pub fn hertz(rate: f64) -> String {
    if rate >= 99.95 {
        format!("{rate:.0}")
    } else if rate >= 9.995 {
        format!("{rate:.1}")
    } else {
        format!("{rate:.2}")
    }
}

/// `1 topic`, `2 topics`
pub fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

/// A name from a file, safe to show: newlines, terminal commands and marks that reverse the direction of a line
/// are escaped.
pub fn shown(text: &str) -> Cow<'_, str> {
    if text.chars().any(|c| c.is_control() || is_deceptive(c)) {
        Cow::Owned(text.escape_debug().to_string())
    } else {
        Cow::Borrowed(text)
    }
}

/// Invisible characters that change how the text around them is shown: direction marks, which can make a line
/// read differently, line separators, and letters of no width.
pub fn is_deceptive(c: char) -> bool {
    matches!(c,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Seconds between two stamps, for JSON.
pub fn seconds_between(start: Stamp, end: Stamp) -> f64 {
    end.since(start) as f64 / 1e9
}

/// A path quoted as one word of a shell, for commands that are shown.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// `did you mean '/odom'?`, for topics; finds a missing slash, too.
pub fn hint<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> Option<String> {
    let slashed = format!("/{wanted}");
    let is_slashed = known.clone().into_iter().any(|name| name == slashed);
    let meant = if is_slashed {
        Some(slashed.as_str())
    } else {
        asof_core::spelling::nearest(wanted, known)
    };
    meant.map(|name| format!("did you mean '{name}'?"))
}

/// Which packages have what this build has not, and the line that builds it.
pub fn absent(what: &str, feature: &str) -> String {
    format!(
        "this build has no {what}; the ready-made packages do: the archive, the Debian package and the wheel `asof`. \
         To build it: cargo install --path crates/asof-cli --features {feature}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_where_there_is_no_room_and_nowhere_else() {
        let long = "é".repeat(300);
        assert_eq!(cut(&long, 240).chars().count(), 242);
        assert_eq!(cut(&long, 300), long);
        assert_eq!(cut(&long, usize::MAX), long);
    }

    #[test]
    fn a_name_with_a_terminals_commands_is_escaped() {
        assert_eq!(shown("/plain/é"), "/plain/é");
        assert_eq!(shown("/a\n\u{1b}[31m"), r"/a\n\u{1b}[31m");
        assert_eq!(shown("c1 \u{9b}31m"), r"c1 \u{9b}31m");
        assert_eq!(shown("gpj.\u{202e}exe"), r"gpj.\u{202e}exe");
        assert_eq!(shown("a\u{200b}b\u{feff}"), r"a\u{200b}b\u{feff}");
    }

    #[test]
    fn a_slash_that_was_left_out_is_seen() {
        let topics = ["/odom", "/scan"];
        assert_eq!(
            hint("odom", topics).as_deref(),
            Some("did you mean '/odom'?")
        );
    }

    #[test]
    fn numbers_read_well_at_their_edges() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_000), "1.0 kB");
        assert_eq!(bytes(999_999), "1.0 MB");
        assert_eq!(bytes(u64::MAX), "18.4 EB");
        assert_eq!(duration(0), "0.000 s");
        assert_eq!(duration(61_500_000_000), "1 min 1.5 s");
        assert_eq!(duration(3_661_000_000_000), "1 h 1 min 1 s");
        assert_eq!(hertz(0.5), "0.50");
        assert_eq!(hertz(200.1), "200");
    }
}
