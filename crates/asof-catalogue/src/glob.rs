//! Names, and globs of names.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use aho_corasick::AhoCorasick;
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

/// Several patterns, which match a name together: in about the time of the name, however many there are.
#[derive(Debug, Clone)]
pub struct NamePatterns {
    all: Arc<[NamePattern]>,
    /// The patterns of each text.
    by_text: Arc<HashMap<String, Vec<usize>>>,
    /// The globs that only match names which contain one of these texts.
    needles: Option<AhoCorasick>,
    /// The pattern of each needle.
    of_needle: Arc<[usize]>,
    /// The globs without such a text.
    anywhere: Arc<[usize]>,
}

impl NamePatterns {
    /// The patterns, in order.
    pub fn as_slice(&self) -> &[NamePattern] {
        &self.all
    }

    /// Whether one of them matches this name.
    pub fn is_match(&self, name: &str) -> bool {
        self.matches(name).next().is_some()
    }

    /// The positions of those that match this name, in no order; one may come more than once.
    pub fn matches<'a>(&'a self, name: &'a str) -> impl Iterator<Item = usize> + 'a {
        let exact = self.by_text.get(name).into_iter().flatten().copied();
        let found = self.needles.as_ref();
        let found = found.map(|needles| needles.find_overlapping_iter(name));
        let found = found.into_iter().flatten();
        let found = found.map(|needle| self.of_needle[needle.pattern()]);
        let globs = found.chain(self.anywhere.iter().copied());
        exact.chain(globs.filter(|&at| self.all[at].is_match(name)))
    }
}

impl FromIterator<NamePattern> for NamePatterns {
    fn from_iter<T: IntoIterator<Item = NamePattern>>(patterns: T) -> Self {
        let all: Arc<[NamePattern]> = patterns.into_iter().collect();
        let mut by_text: HashMap<String, Vec<usize>> = HashMap::new();
        let (mut texts, mut of_needle, mut anywhere) = (Vec::new(), Vec::new(), Vec::new());
        for (at, pattern) in all.iter().enumerate() {
            by_text.entry(pattern.text.clone()).or_default().push(at);
            if pattern.glob.is_none() || pattern.is_exact() {
                continue;
            }
            match needle_of(&pattern.text) {
                "" => anywhere.push(at),
                text => {
                    texts.push(text);
                    of_needle.push(at);
                }
            }
        }
        let needles = AhoCorasick::new(&texts).ok();
        if needles.is_none() {
            anywhere.append(&mut of_needle);
        }
        let (of_needle, anywhere) = (of_needle.into(), anywhere.into());
        NamePatterns {
            by_text: by_text.into(),
            needles,
            of_needle,
            anywhere,
            all,
        }
    }
}

/// The longest text that every name has which a glob matches; empty if none is known.
fn needle_of(glob: &str) -> &str {
    // What is within brackets and braces is one of several; the rest is not looked at.
    let end = glob.find(['[', '{', '\\']).unwrap_or(glob.len());
    let runs = glob[..end].split(['*', '?']);
    // Two asterisks stand for folders with their slashes.
    let runs = runs.map(|run| run.trim_matches('/'));
    runs.max_by_key(|run| run.len()).unwrap_or_default()
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
    fn many_patterns_match_what_each_of_them_matches() {
        let texts = [
            "/tf",
            "/tf*",
            "*",
            "**/tf",
            "/a/**/b",
            "/camera/*/image",
            "{/a,/b}/x",
            "/x[0-9]",
            "/odd[name",
            "*left*",
            "?",
            "/tf",
            "a\\*b*",
        ];
        let names = [
            "/tf",
            "tf",
            "/tf_static",
            "/a/b",
            "/a/x/b",
            "/camera/left/image",
            "/b/x",
            "/x7",
            "/odd[name",
            "",
            "/",
            "a*b",
            "x",
        ];
        for count in 0..=texts.len() {
            let some: Vec<NamePattern> = texts[..count].iter().map(|text| pattern(text)).collect();
            let together: NamePatterns = some.iter().cloned().collect();
            for name in names {
                let mut found: Vec<usize> = together.matches(name).collect();
                found.sort_unstable();
                found.dedup();
                let each = some.iter().enumerate();
                let each = each.filter(|(_, pattern)| pattern.is_match(name));
                let each: Vec<usize> = each.map(|(at, _)| at).collect();
                assert_eq!(found, each, "{name:?} {:?}", &texts[..count]);
                assert_eq!(together.is_match(name), !each.is_empty());
            }
        }
    }

    #[test]
    fn globs_are_only_tried_on_names_that_they_may_match() {
        for scale in [1, 4, 16] {
            let count = 10 * scale;
            let globs: NamePatterns = (0..count)
                .map(|at| NamePattern::new(&format!("/robot*/joint_{at}_*")))
                .collect();
            assert!(globs.anywhere.is_empty());
            let tried: usize = (0..count)
                .map(|at| {
                    let name = format!("/robot1/joint_{at}_state");
                    assert_eq!(globs.matches(&name).collect::<Vec<_>>(), [at]);
                    let needles = globs.needles.as_ref().expect("needles");
                    needles.find_overlapping_iter(&name).count()
                })
                .sum();
            assert_eq!(tried, count);
        }
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
