//! Damage found in an input.

use std::fmt;

/// Damage in a recording that did not stop it from being read.
///
/// Problems are data: a source opens what it can and lists here what it could not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The kind of damage.
    pub kind: ProblemKind,
    /// Byte offset in the file.
    pub offset: Option<u64>,
    /// The topic that it concerns.
    pub topic: Option<String>,
    /// What happened and what was lost, in a sentence for the user.
    pub message: String,
}

/// The kinds of [`Problem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ProblemKind {
    /// The input ends in the middle of a record.
    Truncated,
    /// Bytes that are not a record where a record is expected.
    Garbage,
    /// A record that cannot be read.
    BadRecord,
    /// A checksum that does not match the bytes.
    BadChecksum,
    /// A chunk that cannot be decompressed, or whose size is not the declared one.
    BadChunk,
    /// A compression that this build does not support.
    UnknownCompression,
    /// An index that disagrees with what it points to.
    BadIndex,
    /// Statistics that disagree with the contents.
    BadStatistics,
    /// Two conflicting definitions with one id.
    ConflictingDefinition,
    /// A message on an undefined channel, or a channel with an undefined schema.
    UnknownReference,
    /// A time that cannot be represented.
    BadTime,
    /// Parts that a complete file has and this one lacks.
    Incomplete,
}

impl ProblemKind {
    const ALL: [ProblemKind; 12] = [
        ProblemKind::Truncated,
        ProblemKind::Garbage,
        ProblemKind::BadRecord,
        ProblemKind::BadChecksum,
        ProblemKind::BadChunk,
        ProblemKind::UnknownCompression,
        ProblemKind::BadIndex,
        ProblemKind::BadStatistics,
        ProblemKind::ConflictingDefinition,
        ProblemKind::UnknownReference,
        ProblemKind::BadTime,
        ProblemKind::Incomplete,
    ];

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its name in JSON, in snake case.
    pub const fn name(self) -> &'static str {
        match self {
            ProblemKind::Truncated => "truncated",
            ProblemKind::Garbage => "garbage",
            ProblemKind::BadRecord => "bad_record",
            ProblemKind::BadChecksum => "bad_checksum",
            ProblemKind::BadChunk => "bad_chunk",
            ProblemKind::UnknownCompression => "unknown_compression",
            ProblemKind::BadIndex => "bad_index",
            ProblemKind::BadStatistics => "bad_statistics",
            ProblemKind::ConflictingDefinition => "conflicting_definition",
            ProblemKind::UnknownReference => "unknown_reference",
            ProblemKind::BadTime => "bad_time",
            ProblemKind::Incomplete => "incomplete",
        }
    }
}

impl Problem {
    /// A problem at an offset of the file.
    pub fn at(kind: ProblemKind, offset: u64, message: impl Into<String>) -> Self {
        Problem {
            kind,
            offset: Some(offset),
            topic: None,
            message: message.into(),
        }
    }

    /// A problem of the input as a whole.
    pub fn whole(kind: ProblemKind, message: impl Into<String>) -> Self {
        Problem {
            kind,
            offset: None,
            topic: None,
            message: message.into(),
        }
    }

    /// The same, with the topic that it concerns.
    #[must_use]
    pub fn on_topic(self, topic: impl Into<String>) -> Self {
        Problem {
            topic: Some(topic.into()),
            ..self
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind.name())?;
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        if let Some(topic) = &self.topic {
            write!(f, " on {topic}")?;
        }
        write!(f, ": {}", self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_their_names() {
        for kind in ProblemKind::ALL {
            assert_eq!(ProblemKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(ProblemKind::from_name("nothing"), None);
    }
}
