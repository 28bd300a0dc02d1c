//! Patterns that take robot, site, date and tags from paths.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::str::FromStr;

/// The layout of paths: `{robot}/{date}/…`.
///
/// A name in braces matches the text between its neighbours, within one component of the path. `*` matches anything
/// within a component, `…` (or `...`, or `**`) anything at all. `{robot}`, `{site}` and `{date}` are columns, all
/// others are tags; `{year}`, `{month}` and `{day}` together are a date.
///
/// ```
/// use asof_catalogue::KeyPattern;
///
/// let pattern: KeyPattern = "{robot}/{date}/…".parse()?;
/// let said = pattern.read("r7/2024-05-01/morning/run.mcap").expect("it is laid out so");
/// assert_eq!(said["robot"], "r7");
/// assert_eq!(said["date"], "2024-05-01");
/// assert!(pattern.read("run.mcap").is_none());
/// # Ok::<(), asof_catalogue::PatternError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPattern {
    text: String,
    tokens: Vec<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Text(String),
    /// A name in braces.
    Name(String),
    /// Anything within a component of the path, also nothing.
    Star,
    /// Anything.
    Rest,
}

/// Why a text is not a [`KeyPattern`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// The pattern is empty.
    #[error("the pattern is empty; write it as '{{robot}}/{{date}}/…'")]
    Empty,
    /// A brace without its partner.
    #[error("'{0}': unbalanced brace; write names as '{{robot}}'")]
    Brace(String),
    /// The text in braces is not a name.
    #[error("'{pattern}': '{name}' is not a name; use letters, digits, '_' and '-'")]
    Name {
        /// The pattern.
        pattern: String,
        /// What is in braces.
        name: String,
    },
    /// A name is used twice.
    #[error("'{pattern}': {{{name}}} occurs twice; use '*' for a part you do not need")]
    Twice {
        /// The pattern.
        pattern: String,
        /// The name.
        name: String,
    },
    /// Two names are adjacent.
    #[error(
        "'{0}': two names are adjacent, so it is ambiguous where one ends; put a text between them"
    )]
    Adjacent(String),
    /// The pattern has no names.
    #[error("'{0}': it has no names; write it as '{{robot}}/{{date}}/…'")]
    Nothing(String),
}

impl KeyPattern {
    /// The names and values in a path; `None` if the path does not match.
    pub fn read(&self, path: &str) -> Option<BTreeMap<String, String>> {
        let mut matching = Matching {
            tokens: &self.tokens,
            path,
            failed: HashSet::new(),
            found: Vec::new(),
        };
        if !matching.from(0, 0) {
            return None;
        }
        let found = matching.found.into_iter();
        let mut said: BTreeMap<String, String> = found
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let day = ["year", "month", "day"].map(|name| said.get(name).cloned());
        if let [Some(year), Some(month), Some(day)] = day
            && !said.contains_key("date")
        {
            said.insert("date".to_owned(), format!("{year}-{month:0>2}-{day:0>2}"));
        }
        Some(said)
    }

    /// The names and values in a path, by the first pattern that matches.
    pub(crate) fn read_by(patterns: &[KeyPattern], path: &str) -> BTreeMap<String, String> {
        patterns
            .iter()
            .find_map(|pattern| pattern.read(path))
            .unwrap_or_default()
    }
}

/// Matches a path against a pattern.
struct Matching<'a> {
    tokens: &'a [Token],
    path: &'a str,
    /// Tokens and positions that are known to fail: without these, matching could take exponential time.
    failed: HashSet<(usize, usize)>,
    found: Vec<(&'a str, &'a str)>,
}

impl Matching<'_> {
    fn from(&mut self, token: usize, at: usize) -> bool {
        let Some(wanted) = self.tokens.get(token) else {
            return at == self.path.len();
        };
        if self.failed.contains(&(token, at)) {
            return false;
        }
        let rest = &self.path[at..];
        let is_met = match wanted {
            Token::Text(text) => {
                rest.starts_with(text.as_str()) && self.from(token + 1, at + text.len())
            }
            Token::Rest => (0..=rest.len())
                .rev()
                .any(|len| rest.is_char_boundary(len) && self.from(token + 1, at + len)),
            Token::Star | Token::Name(_) => self.within_a_name(token, at),
        };
        if !is_met {
            self.failed.insert((token, at));
        }
        is_met
    }

    /// The shortest text without a slash after which the rest matches.
    fn within_a_name(&mut self, token: usize, at: usize) -> bool {
        let rest = &self.path[at..];
        let longest = rest.find('/').unwrap_or(rest.len());
        let least = usize::from(matches!(self.tokens[token], Token::Name(_)));
        for len in least..=longest {
            if !rest.is_char_boundary(len) {
                continue;
            }
            let before = self.found.len();
            if let Token::Name(name) = &self.tokens[token] {
                self.found.push((name, &rest[..len]));
            }
            if self.from(token + 1, at + len) {
                return true;
            }
            self.found.truncate(before);
        }
        false
    }
}

impl FromStr for KeyPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.trim().is_empty() {
            return Err(PatternError::Empty);
        }
        let mut tokens: Vec<Token> = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (token, len) = next_token(text, rest)?;
            rest = &rest[len..];
            match (tokens.last_mut(), token) {
                (Some(Token::Text(before)), Token::Text(more)) => before.push_str(&more),
                (Some(Token::Name(_)), Token::Name(_)) => {
                    return Err(PatternError::Adjacent(text.to_owned()));
                }
                (_, token) => tokens.push(token),
            }
        }
        let mut names = HashSet::new();
        for token in &tokens {
            if let Token::Name(name) = token
                && !names.insert(name)
            {
                return Err(PatternError::Twice {
                    pattern: text.to_owned(),
                    name: name.clone(),
                });
            }
        }
        if names.is_empty() {
            return Err(PatternError::Nothing(text.to_owned()));
        }
        // A folder matches everything in it.
        if text.ends_with('/') {
            tokens.push(Token::Rest);
        }
        Ok(KeyPattern {
            text: text.to_owned(),
            tokens,
        })
    }
}

/// The first token of a text, and its length there.
fn next_token(pattern: &str, rest: &str) -> Result<(Token, usize), PatternError> {
    for any in ["…", "...", "**"] {
        if rest.starts_with(any) {
            return Ok((Token::Rest, any.len()));
        }
    }
    if rest.starts_with('*') {
        return Ok((Token::Star, 1));
    }
    if rest.starts_with('}') {
        return Err(PatternError::Brace(pattern.to_owned()));
    }
    if let Some(inside) = rest.strip_prefix('{') {
        let end = inside
            .find('}')
            .ok_or_else(|| PatternError::Brace(pattern.to_owned()))?;
        let name = &inside[..end];
        let is_plain = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err(PatternError::Name {
                pattern: pattern.to_owned(),
                name: name.to_owned(),
            });
        }
        return Ok((Token::Name(name.to_owned()), end + 2));
    }
    let len = rest.chars().next().map_or(0, char::len_utf8);
    Ok((Token::Text(rest[..len].to_owned()), len))
}

impl fmt::Display for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pattern: &str, path: &str) -> Option<Vec<String>> {
        let pattern: KeyPattern = pattern.parse().expect(pattern);
        let said = pattern.read(path)?;
        Some(
            said.iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect(),
        )
    }

    #[test]
    fn names_stand_for_what_is_between_the_texts() {
        let cases: [(&str, &str, &[&str]); 7] = [
            (
                "{robot}/{date}/…",
                "r7/may/run.mcap",
                &["date=may", "robot=r7"],
            ),
            (
                "{robot}/{date}/...",
                "r7/may/a/b.mcap",
                &["date=may", "robot=r7"],
            ),
            ("robot={robot}/**", "robot=r7/x.mcap", &["robot=r7"]),
            (
                "{robot}_{date}_*.mcap",
                "r_7_may_1.mcap",
                &["date=7", "robot=r"],
            ),
            ("{site}/", "berlin/hall/x.mcap", &["site=berlin"]),
            ("…/{robot}.mcap", "a/b/ü7.mcap", &["robot=ü7"]),
            (
                "{year}/{month}/{day}/…",
                "2024/5/01/x",
                &["date=2024-05-01", "day=01", "month=5", "year=2024"],
            ),
        ];
        for (pattern, path, wanted) in cases {
            assert_eq!(
                read(pattern, path).as_deref(),
                Some(&wanted.iter().map(ToString::to_string).collect::<Vec<_>>()[..]),
                "{pattern} {path}"
            );
        }
    }

    #[test]
    fn a_path_that_is_laid_out_otherwise_says_nothing() {
        for (pattern, path) in [
            ("{robot}/{date}/…", "run.mcap"),
            ("{robot}/x.mcap", "a/b/x.mcap"),
            ("{robot}/x.mcap", "/x.mcap"),
            ("a/{robot}", "b/c"),
        ] {
            assert_eq!(read(pattern, path), None, "{pattern} {path}");
        }
    }

    #[test]
    fn a_text_that_is_not_a_pattern_is_refused() {
        for text in [
            "",
            "{robot",
            "robot}",
            "{}",
            "{a b}",
            "{robot}/{robot}",
            "{robot}{date}",
            "a/*/b",
        ] {
            assert!(text.parse::<KeyPattern>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_hostile_path_is_answered_soon() {
        let pattern = format!("{}{{robot}}!", "*a".repeat(30));
        assert_eq!(read(&pattern, &"a".repeat(1_000)), None);
    }
}
