//! Splits a text into statements.

/// The statements of a text, and the rest after the last semicolon. Semicolons in quotes and comments do not count.
pub fn split(text: &str) -> (Vec<&str>, &str) {
    let mut statements = Vec::new();
    let mut start = 0;
    let mut rest = text.char_indices().peekable();
    while let Some((at, letter)) = rest.next() {
        let next = rest.peek().map(|(_, next)| *next);
        match (letter, next) {
            ('\'' | '"', _) => {
                // A doubled quote ends the string and begins the next.
                rest.by_ref().find(|(_, other)| *other == letter);
            }
            ('-', Some('-')) => {
                rest.by_ref().find(|(_, other)| *other == '\n');
            }
            ('/', Some('*')) => {
                rest.next();
                let mut before = ' ';
                for (_, other) in rest.by_ref() {
                    if before == '*' && other == '/' {
                        break;
                    }
                    before = other;
                }
            }
            (';', _) => {
                statements.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    statements.retain(|statement| !is_blank(statement));
    (statements, &text[start..])
}

/// All statements of a text, the last one with or without a semicolon.
pub fn all(text: &str) -> Vec<&str> {
    let (mut statements, rest) = split(text);
    if !is_blank(rest) {
        statements.push(rest);
    }
    statements
}

/// Whether there is only whitespace and comments.
pub fn is_blank(text: &str) -> bool {
    let mut rest = text.trim_start();
    loop {
        if rest.is_empty() {
            return true;
        }
        rest = if let Some(comment) = rest.strip_prefix("--") {
            comment.split_once('\n').map_or("", |(_, rest)| rest)
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.split_once("*/").map_or("", |(_, rest)| rest)
        } else {
            return false;
        }
        .trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_end_statements_but_not_within_quotes_and_comments() {
        let text = "SELECT ';', \";\" -- not; here\n, 1; /* ; */ ;\nSELECT 'it''s;' ; -- done";
        assert_eq!(
            all(text),
            ["SELECT ';', \";\" -- not; here\n, 1", "\nSELECT 'it''s;' "]
        );
        assert_eq!(split("SELECT 1"), (vec![], "SELECT 1"));
        assert_eq!(split("SELECT ';"), (vec![], "SELECT ';"));
        assert_eq!(all(" -- nothing\n /* at all */ ;;"), Vec::<&str>::new());
        assert_eq!(all("é;ü"), ["é", "ü"]);
    }
}
