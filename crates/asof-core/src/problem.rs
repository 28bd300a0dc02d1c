//! What was wrong with an input.

use std::fmt;

/// Something that was wrong in a recording, and did not stop it from being read.
///
/// Problems are data: a source opens what it can and says here what it could not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What sort of damage it is.
    pub kind: ProblemKind,
    /// Where in the file, in bytes from its start.
    pub offset: Option<u64>,
    /// The topic that it concerns.
    pub topic: Option<String>,
    /// What happened and what it cost, in a sentence for a person.
    pub message: String,
}

/// The sorts of [`Problem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ProblemKind {
    /// The input ends in the middle of something.
    Truncated,
    /// Bytes that are not a record where one should be.
    Garbage,
    /// A record that cannot be read.
    BadRecord,
    /// A checksum that does not agree with the bytes.
    BadChecksum,
    /// A chunk that cannot be decompressed, or is not as large as it says.
    BadChunk,
    /// A compression that this build does not know.
    UnknownCompression,
    /// An index that disagrees with what it points to.
    BadIndex,
    /// Statistics that disagree with the contents.
    BadStatistics,
    /// Two definitions under one number that do not agree.
    ConflictingDefinition,
    /// A message on a channel, or a channel with a schema, that nobody defined.
    UnknownReference,
    /// A time that cannot be represented.
    BadTime,
    /// Parts that a complete file has and this one has not.
    Incomplete,
}

impl ProblemKind {
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
