//! Errors in schemas and in payloads.

/// A boxed [`PayloadError`]: errors are rare and large, results are many and small.
pub(crate) type Fault = Box<PayloadError>;

/// Why a schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// A line or a token that cannot be parsed.
    #[error("{language} schema, line {line}: {reason}")]
    Syntax {
        /// The schema's language.
        language: &'static str,
        /// The line number, from one.
        line: usize,
        /// What was found, and what was expected.
        reason: String,
    },
    /// A type that the schema refers to but does not define.
    #[error("the schema does not define '{name}', which '{user}' refers to")]
    UnknownType {
        /// The missing type.
        name: String,
        /// The type that needs it.
        user: String,
    },
    /// A type that contains itself, in an encoding that does not allow it.
    #[error("'{name}' contains itself, which {language} does not allow")]
    Recursive {
        /// The type.
        name: String,
        /// The schema's language.
        language: &'static str,
    },
    /// A schema that cannot be parsed at all.
    #[error("{language} schema: {reason}")]
    Unreadable {
        /// The schema's language.
        language: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A schema that exceeds a limit.
    #[error("the schema is too large: {reason}")]
    TooLarge {
        /// The limit that is exceeded.
        reason: String,
    },
    /// A combination of message encoding and schema encoding that is not supported.
    #[error(
        "messages encoded as '{message_encoding}' with a schema in '{schema_encoding}' cannot be decoded"
    )]
    UnknownEncoding {
        /// The channel's message encoding.
        message_encoding: String,
        /// The schema's encoding, empty where there is no schema.
        schema_encoding: String,
    },
    /// A type without a definition, as in bags of ROS 2 before Iron.
    #[error("no definition of {name} is known")]
    NoDefinition {
        /// The type.
        name: String,
    },
    /// A requested field that does not exist.
    #[error("there is no field '{path}' in '{name}'")]
    NoSuchField {
        /// The requested path.
        path: String,
        /// The message type.
        name: String,
    },
}

/// How much of something a schema may declare, and how much of it was declared so far.
#[derive(Debug)]
pub(crate) struct Allowance {
    most: usize,
    pub used: usize,
    /// What is counted, in the plural.
    unit: &'static str,
}

impl Allowance {
    pub fn new(most: usize, unit: &'static str) -> Self {
        let used = 0;
        Allowance { most, used, unit }
    }

    pub fn take(&mut self, count: usize) -> Result<(), SchemaError> {
        self.used = self.used.saturating_add(count);
        if self.used > self.most {
            let reason = format!("more than {} {}", self.most, self.unit);
            return Err(SchemaError::TooLarge { reason });
        }
        Ok(())
    }
}

/// Why a payload cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// It is truncated.
    #[error("the payload ends at byte {len}, in the middle of {what} at byte {at}")]
    Short {
        /// What was being read.
        what: &'static str,
        /// The offset where it starts.
        at: usize,
        /// The payload's length.
        len: usize,
    },
    /// It violates the encoding.
    #[error("byte {at}: {reason}")]
    Malformed {
        /// The offset.
        at: usize,
        /// What is wrong.
        reason: String,
    },
    /// It is nested too deeply.
    #[error("byte {at}: nested more than {limit} levels deep")]
    TooDeep {
        /// The offset.
        at: usize,
        /// The limit.
        limit: usize,
    },
    /// A value is too large for a column.
    #[error("byte {at}: {reason}")]
    TooLarge {
        /// The offset.
        at: usize,
        /// What is too large.
        reason: String,
    },
}

/// Why a message cannot be decoded: its channel's schema, or its own payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// None of the channel's messages can be decoded.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// This message cannot be decoded.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// A table could not be built from it, which is a bug in its layer.
    #[error("cannot build a table from it: {0}")]
    Table(String),
}

impl PayloadError {
    pub(crate) fn malformed(at: usize, reason: impl Into<String>) -> Self {
        PayloadError::Malformed {
            at,
            reason: reason.into(),
        }
    }
}
