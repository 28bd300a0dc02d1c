//! The names of frames.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The most bytes in a name.
const MAX_NAME_BYTES: usize = 1024;
/// The most bytes stored without an allocation.
const INLINE: usize = 30;

/// A frame's name without a leading slash; cheap to copy into an error.
#[derive(Clone)]
pub struct FrameName(Text);

#[derive(Clone)]
enum Text {
    Short(u8, [u8; INLINE]),
    Long(Arc<str>),
}

impl FrameName {
    /// A name as it is stored, or why it is invalid.
    ///
    /// One leading slash is dropped, as tf2 does. Refused: an empty name, a second leading
    /// slash, control characters, spaces at either end, more than 1,024 bytes.
    pub(crate) fn new(text: &str) -> Result<Self, &'static str> {
        let bare = strip(text);
        // Nearly all names consist of these and have no leading slash.
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        if (1..=INLINE).contains(&bare.len()) && bare.as_bytes().iter().all(is_plain) {
            return Ok(FrameName::unchecked(bare));
        }
        let problem = if bare.is_empty() {
            "it is empty"
        } else if bare.starts_with('/') {
            "it starts with more than one slash"
        } else if bare.len() > MAX_NAME_BYTES {
            "it is longer than 1024 bytes"
        } else if bare.chars().any(char::is_control) {
            "it has control characters"
        } else if bare.trim() != bare {
            "it starts or ends with a space"
        } else {
            return Ok(FrameName::unchecked(bare));
        };
        Err(problem)
    }

    /// Any text, for error messages.
    pub(crate) fn unchecked(text: &str) -> Self {
        if text.len() > INLINE {
            return FrameName(Text::Long(text.into()));
        }
        let mut bytes = [0; INLINE];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        FrameName(Text::Short(text.len() as u8, bytes))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        // The bytes came from a str; only a bug here could make this empty.
        std::str::from_utf8(self.bytes()).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Short(len, bytes) => &bytes[..*len as usize],
            Text::Long(text) => text.as_bytes(),
        }
    }
}

/// The name without one leading slash.
#[inline]
pub(crate) fn strip(text: &str) -> &str {
    text.strip_prefix('/').unwrap_or(text)
}

/// The hash key of a name. Names of up to 16 bytes are equal if their keys are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    len: u32,
    low: u64,
    high: u64,
}

const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
const SECOND: u64 = 0xd6e8_feb8_6659_fd93;

impl Key {
    /// Two overlapping words are all of a name of up to 16 bytes.
    #[inline]
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let len = bytes.len();
        let (low, high) = match len {
            8..=16 => (word(&bytes[..8]), word(&bytes[len - 8..])),
            4..8 => (half(&bytes[..4]), half(&bytes[len - 4..])),
            1..4 => (
                bytes[0] as u64 | (bytes[len / 2] as u64) << 8,
                bytes[len - 1] as u64,
            ),
            0 => (0, 0),
            _ => Key::of_long(bytes),
        };
        Key {
            len: len as u32,
            low,
            high,
        }
    }

    /// Of a longer one the front is folded, sixteen bytes at a time.
    #[inline(never)]
    fn of_long(bytes: &[u8]) -> (u64, u64) {
        let (mut seed, mut rest) = (FIRST, bytes);
        while let Some((block, tail)) = rest.split_first_chunk::<16>() {
            if tail.is_empty() {
                break;
            }
            seed = fold(word(&block[..8]) ^ seed, word(&block[8..]) ^ SECOND);
            rest = tail;
        }
        let back = &bytes[bytes.len() - 16..];
        (seed ^ word(&back[..8]), word(&back[8..]))
    }

    /// Whether it determines the name.
    #[inline]
    pub(crate) fn is_whole(self) -> bool {
        self.len <= 16
    }

    #[inline]
    pub(crate) fn hash(self) -> u64 {
        let seed = FIRST ^ u64::from(self.len);
        fold(self.low ^ seed, self.high ^ SECOND)
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    (wide as u64) ^ (wide >> 64) as u64
}

#[inline]
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(word)
}

#[inline]
fn half(bytes: &[u8]) -> u64 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[..4]);
    u64::from(u32::from_le_bytes(word))
}

/// Why a text is not a valid frame name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a name for a frame: {problem}")]
pub struct BadFrameName {
    /// The text, or its beginning.
    pub name: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl std::str::FromStr for FrameName {
    type Err = BadFrameName;

    /// One leading slash is dropped.
    fn from_str(text: &str) -> Result<Self, BadFrameName> {
        FrameName::new(text).map_err(|problem| BadFrameName {
            name: text.chars().take(100).collect(),
            problem,
        })
    }
}

impl std::ops::Deref for FrameName {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for FrameName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq for FrameName {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for FrameName {}

impl PartialEq<str> for FrameName {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for FrameName {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialOrd for FrameName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FrameName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.bytes().cmp(other.bytes())
    }
}

impl Hash for FrameName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Display for FrameName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for FrameName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_leading_slash_is_dropped_and_no_more() {
        assert_eq!(FrameName::new("/map").expect("a name"), "map");
        assert_eq!(FrameName::new("a/b").expect("a name"), "a/b");
        for bad in [
            "",
            "/",
            "//map",
            " map",
            "map\t",
            "ma\0p",
            &"x".repeat(1025),
        ] {
            assert!(FrameName::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn keys_of_short_names_are_the_same_only_for_the_same_name() {
        let mut seen = std::collections::HashMap::new();
        for len in 0..=16 {
            for changed in 0..len {
                for with in [b'b', b'/', 0] {
                    let mut name = vec![b'a'; len];
                    name[changed] = with;
                    let key = Key::of(&name);
                    assert!(key.is_whole());
                    let keyed = seen
                        .entry((key.len, key.low, key.high))
                        .or_insert(name.clone());
                    assert_eq!(*keyed, name);
                }
            }
        }
    }

    #[test]
    fn names_of_every_length_keep_their_text_and_differ_in_hash() {
        let mut seen = std::collections::HashSet::new();
        for len in 0..80 {
            for fill in ["a", "b"] {
                let text = fill.repeat(len);
                assert_eq!(FrameName::unchecked(&text).as_str(), text);
                assert!(
                    seen.insert(Key::of(text.as_bytes()).hash()) || len == 0,
                    "{text}"
                );
            }
        }
        for i in 0..1000 {
            let text = format!("frame_{i}");
            assert!(seen.insert(Key::of(text.as_bytes()).hash()));
        }
    }
}
