//! Names, and globs of names.

use std::fmt;
use std::str::FromStr;

use globset::{Glob, GlobMatcher};

/// A name, or a glob that matches several: `/tf`, `/camera/*`, `r[1-4]`.
///
/// A name always matches itself, also when it is a glob too.
#[derive(Debug, Clone)]
pub struct NamePattern {
    text: String,
    /// `None` if the text is not a glob.
    glob: Option<GlobMatcher>,
}

/// The characters that make a text a glob.
const SPECIAL: [char; 5] = ['*', '?', '[', '{', '\\'];

impl NamePattern {
    /// A pattern from a text. Every text is a pattern.
    pub fn new(text: &str) -> Self {
        NamePattern {
            text: text.to_owned(),
            glob: Glob::new(text).ok().map(|glob| glob.compile_matcher()),
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
