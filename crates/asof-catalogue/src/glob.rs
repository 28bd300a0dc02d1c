//! Names, and globs of names.

use std::fmt;
use std::str::FromStr;

use globset::{Glob, GlobSet};

/// A name, or a glob that matches several: `/tf`, `/camera/*`, `r[1-4]`.
///
/// A name always matches itself, also when it is a glob too.
#[derive(Debug, Clone)]
pub struct NamePattern {
    text: String,
    /// `None` if the text is not a glob, or a larger one than anybody writes.
    glob: Option<GlobSet>,
}

/// The characters that make a text a glob.
const SPECIAL: [char; 5] = ['*', '?', '[', '{', '\\'];

/// The longest glob, in bytes. Patterns come from clients of servers too.
const MAX_GLOB_BYTES: usize = 1024;
/// How deep braces may be within braces: each is a call of the parser within another.
const MAX_GLOB_DEPTH: usize = 32;

/// A glob within these limits.
fn glob_of(text: &str) -> Option<GlobSet> {
    let mut depth = 0_usize;
    let is_deep = text.bytes().any(|byte| {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > MAX_GLOB_DEPTH
    });
    if is_deep || text.len() > MAX_GLOB_BYTES {
        return None;
    }
    // A set of one: unlike a single matcher, it does not panic where the expression becomes too large.
    let glob = Glob::new(text).ok()?;
    GlobSet::builder().add(glob).build().ok()
}

impl NamePattern {
    /// A pattern from a text. Every text is a pattern; one that is too long or too deep for a glob means itself alone.
    pub fn new(text: &str) -> Self {
        NamePattern {
            text: text.to_owned(),
            glob: glob_of(text),
        }
    }

    /// The text as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it matches this name.
    pub fn is_match(&self, name: &str) -> bool {
        self.text == name || self.glob.as_ref().is_some_and(|glob| glob.is_match(name))
    }

    /// The common prefix of all names that it matches.
    pub fn prefix(&self) -> &str {
        let end = self.text.find(SPECIAL).unwrap_or(self.text.len());
        &self.text[..end]
    }

    /// Whether it matches only one name.
    pub fn is_exact(&self) -> bool {
        !self.text.contains(SPECIAL)
    }

    /// An upper bound, inclusive, of the names that it matches; `None` if there is none.
    pub(crate) fn upper_bound(&self) -> Option<Vec<u8>> {
        let mut bytes = self.prefix().as_bytes().to_vec();
        if self.is_exact() {
            return Some(bytes);
        }
        // Everything with the prefix sorts before the prefix with its last byte incremented.
        while let Some(last) = bytes.pop() {
            if last < u8::MAX {
                bytes.push(last + 1);
                return Some(bytes);
            }
        }
        None
    }
}

impl FromStr for NamePattern {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(NamePattern::new(text))
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> NamePattern {
        text.parse().expect("any text is a pattern")
    }

    #[test]
    fn no_pattern_is_too_much() {
        for text in [
            "{".repeat(100_000),
            format!("{}a{}", "{".repeat(300), "}".repeat(300)),
            format!("{}a{}", "{".repeat(5000), "}".repeat(5000)),
            "?".repeat(1024),
            "[!-~]*".repeat(170),
            "{a,b}".repeat(200),
            "*".repeat(1_000_000),
        ] {
            let found = pattern(&text);
            assert!(found.is_match(&text) && !found.is_match("/tf"));
        }
        assert!(pattern("{a,{b,{c,d}}}").is_match("d"));
    }

    #[test]
    fn every_name_that_is_meant_lies_within_the_bounds() {
        let names = [
            "/tf",
            "/tf_static",
            "/camera/left",
            "/odd[name",
            "/zebra",
            "/tg",
            "",
        ];
        for text in [
            "/tf",
            "/tf*",
            "/camera/*",
            "*",
            "/odd[name",
            "{/tf,/zebra}",
            "/t?",
        ] {
            let pattern = pattern(text);
            for name in names.iter().filter(|name| pattern.is_match(name)) {
                // A name that is a glob by mistake means itself, and is searched for everywhere it may be.
                let low = pattern.prefix().as_bytes();
                assert!(name.as_bytes() >= low, "{text} {name}");
                let high = pattern.upper_bound();
                assert!(
                    high.is_none_or(|high| name.as_bytes() <= &high[..]),
                    "{text} {name}"
                );
            }
        }
    }
}
