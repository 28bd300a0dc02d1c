//! Output in which everything that could control a terminal is escaped.

use std::io::{self, Write};

/// What is escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escapes {
    /// Nothing: the bytes of a file are written unchanged.
    Nothing,
    /// What JSON does not escape: the second set of control characters, and marks that reverse the direction of a line.
    /// In JSON strings the escape is an equivalent spelling.
    Unseen,
    /// Also control characters of both sets, except line ends and tabs: for values on a terminal.
    Controls,
}

/// A writer that escapes characters as `\\u202e`.
pub struct EscapeWriter<W> {
    out: W,
    escapes: Escapes,
    /// Whether output is flushed at the end of each line.
    is_by_lines: bool,
    /// The beginning of a character whose rest has not arrived yet.
    begun: Vec<u8>,
}

/// The longest character that is escaped.
const MAX_CHAR_BYTES: usize = 3;

impl<W: Write> EscapeWriter<W> {
    /// A writer to `out`.
    pub fn new(out: W, escapes: Escapes) -> Self {
        EscapeWriter {
            out,
            escapes,
            is_by_lines: false,
            begun: Vec::with_capacity(MAX_CHAR_BYTES),
        }
    }

    /// The same, flushing each complete line.
    #[must_use]
    pub fn by_lines(self, is_by_lines: bool) -> Self {
        EscapeWriter {
            is_by_lines,
            ..self
        }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut from = 0;
        let mut at = 0;
        while let Some(next) = self.next_candidate(&bytes[at..]) {
            at += next;
            match meaning(&bytes[at..]) {
                Meaning::Begun => {
                    self.out.write_all(&bytes[from..at])?;
                    self.begun.extend_from_slice(&bytes[at..]);
                    return Ok(());
                }
                Meaning::Escaped { code, len } => {
                    self.out.write_all(&bytes[from..at])?;
                    write!(self.out, "\\u{code:04x}")?;
                    at += len;
                    from = at;
                }
                Meaning::Plain => at += 1,
            }
        }
        self.out.write_all(&bytes[from..])
    }

    /// The next byte that may begin something to escape.
    fn next_candidate(&self, bytes: &[u8]) -> Option<usize> {
        let has_controls = self.escapes == Escapes::Controls;
        bytes.iter().position(|&byte| {
            matches!(byte, 0xc2 | 0xd8 | 0xe2 | 0xef)
                || (has_controls && (byte < 0x20 || byte == 0x7f) && !matches!(byte, b'\n' | b'\t'))
        })
    }
}

enum Meaning {
    /// The first bytes of something that may need escaping.
    Begun,
    Escaped {
        code: u32,
        len: usize,
    },
    Plain,
}

/// Classifies the bytes at a candidate.
fn meaning(bytes: &[u8]) -> Meaning {
    let code = |code: u32, len: usize| Meaning::Escaped { code, len };
    match *bytes {
        [byte @ (..0x20 | 0x7f), ..] => code(byte.into(), 1),
        [0xc2, second @ 0x80..=0x9f, ..] => code(second.into(), 2),
        [0xd8, 0x9c, ..] => code(0x61c, 2),
        [0xe2, 0x80, third @ (0x8b..=0x8f | 0xa8..=0xae), ..] => {
            code(0x2000 + u32::from(third & 0x3f), 3)
        }
        [0xe2, 0x81, third @ 0xa0..=0xaf, ..] => code(0x2040 + u32::from(third & 0x3f), 3),
        [0xef, 0xbb, 0xbf, ..] => code(0xfeff, 3),
        [0xc2 | 0xd8 | 0xe2 | 0xef] | [0xe2, 0x80 | 0x81] | [0xef, 0xbb] => Meaning::Begun,
        _ => Meaning::Plain,
    }
}

impl<W: Write> Write for EscapeWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.put_all(bytes)?;
        if self.is_by_lines && bytes.ends_with(b"\n") {
            self.out.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        // An incomplete character is not a character, and cannot control anything.
        let begun = std::mem::take(&mut self.begun);
        self.out.write_all(&begun)?;
        self.out.flush()
    }
}

impl<W: Write> EscapeWriter<W> {
    fn put_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Nearly all output is plain, which is quick to check.
        let is_plain = self.escapes == Escapes::Unseen && self.begun.is_empty() && bytes.is_ascii();
        if is_plain || self.escapes == Escapes::Nothing {
            return self.out.write_all(bytes);
        }
        if self.begun.is_empty() {
            return self.put(bytes);
        }
        let mut whole = std::mem::take(&mut self.begun);
        whole.extend_from_slice(bytes);
        self.put(&whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::is_deceptive;

    fn written(escapes: Escapes, parts: &[&[u8]]) -> String {
        let mut out = Vec::new();
        let mut escaped = EscapeWriter::new(&mut out, escapes);
        for part in parts {
            escaped.write_all(part).expect("memory");
        }
        escaped.flush().expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn json_means_the_same_with_every_character_that_cannot_be_seen_escaped() {
        for code in 0x80..=0xffff_u32 {
            let Some(c) = char::from_u32(code) else {
                continue;
            };
            let text = format!("a{c}b");
            let json = serde_json::to_string(&text).expect("JSON");
            let safe = written(Escapes::Unseen, &[json.as_bytes()]);
            assert_eq!(serde_json::from_str::<String>(&safe).expect("JSON"), text);
            let is_escaped = safe != json;
            assert_eq!(is_escaped, c.is_control() || is_deceptive(c), "{code:x}");
        }
    }

    #[test]
    fn a_character_in_parts_is_escaped_all_the_same() {
        let text = "x\u{202e}y\u{9b}z\u{feff}é…".as_bytes();
        let whole = written(Escapes::Unseen, &[text]);
        assert_eq!(whole, r"x\u202ey\u009bz\ufeffé…");
        for cut in 0..=text.len() {
            let (front, back) = text.split_at(cut);
            assert_eq!(written(Escapes::Unseen, &[front, back]), whole, "{cut}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(written(Escapes::Unseen, &bytes), whole);
    }

    #[test]
    fn controls_are_escaped_where_they_are_values() {
        let text = b"a,\x1b[31mred\x07\n\tb\x7f\r\n";
        assert_eq!(
            written(Escapes::Controls, &[text]),
            "a,\\u001b[31mred\\u0007\n\tb\\u007f\\u000d\n"
        );
        // Colours are our own.
        assert_eq!(written(Escapes::Unseen, &[b"\x1b[1mbold"]), "\x1b[1mbold");
        assert_eq!(written(Escapes::Nothing, &[b"\xc2\x9b"]), "\u{9b}");
    }
}
