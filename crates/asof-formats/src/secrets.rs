//! Addresses without secrets, for display.

/// A text in which every address has its user, password and query removed: `https://…@host/run.mcap?…`.
///
/// Both may contain secrets, and texts with addresses end up in logs and on screens.
///
/// ```
/// use asof_formats::without_secrets;
///
/// let told = without_secrets("cannot open https://me:secret@example.com/run.mcap?sig=abc: gone");
/// assert_eq!(told, "cannot open https://…@example.com/run.mcap?…: gone");
/// ```
pub fn without_secrets(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, behind) = rest.split_at(at + 3);
        shown.push_str(before);
        let end = behind
            .find(|c: char| c.is_whitespace() || "\"'<>()`".contains(c))
            .unwrap_or(behind.len());
        let (address, after) = behind.split_at(end);
        // A sentence may continue right after an address.
        let trimmed = address.trim_end_matches([':', ';', ',', '.']);
        push_address(&mut shown, trimmed);
        shown.push_str(&address[trimmed.len()..]);
        rest = after;
    }
    shown.push_str(rest);
    shown
}

/// An address without its scheme.
fn push_address(shown: &mut String, address: &str) {
    let path = address.find(['/', '?', '#']).unwrap_or(address.len());
    let (server, path) = address.split_at(path);
    match server.rsplit_once('@') {
        Some((_, host)) => shown.extend(["…@", host]),
        None => shown.push_str(server),
    }
    match path.find(['?', '#']) {
        Some(at) if path[at..].starts_with('?') => shown.extend([&path[..at], "?…"]),
        Some(at) => shown.push_str(&path[..at]),
        None => shown.push_str(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_gone_and_everything_else_stays() {
        let cases = [
            ("no address here: a/b?c=d@e", "no address here: a/b?c=d@e"),
            ("s3://bucket/run.mcap", "s3://bucket/run.mcap"),
            ("https://u:p@h/x?sig=S#f", "https://…@h/x?…"),
            (
                "(http://h:8080/a?token=S); next",
                "(http://h:8080/a?…); next",
            ),
            ("http://u:p@/q@h/x", "http://…@/q@h/x"),
            (
                "a http://h?s=S and ftp://u@k/x#S",
                "a http://h?… and ftp://…@k/x",
            ),
            ("http://", "http://"),
        ];
        for (text, wanted) in cases {
            assert_eq!(without_secrets(text), wanted);
        }
    }
}
