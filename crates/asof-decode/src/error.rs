//! What can be wrong with a schema, and with a payload.

/// A [`PayloadError`] on its way: errors are rare and large, results are many and small.
pub(crate) type Fault = Box<PayloadError>;

/// Why a schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// A line or a token that is not understood.
    #[error("{language} schema, line {line}: {reason}")]
    Syntax {
        /// The schema's language.
        language: &'static str,
        /// Where, counted from one.
        line: usize,
        /// What was found, and what was expected.
        reason: String,
    },
    /// A type that the schema names and does not define.
    #[error("the schema does not define '{name}', which '{user}' refers to")]
    UnknownType {
        /// The missing type.
        name: String,
        /// The type that needs it.
        user: String,
    },
    /// A type that contains itself, in an encoding that cannot have that.
    #[error("'{name}' contains itself, which {language} does not allow")]
    Recursive {
        /// The type.
        name: String,
        /// The schema's language.
        language: &'static str,
    },
    /// A schema that cannot be read at all.
    #[error("{language} schema: {reason}")]
    Unreadable {
        /// The schema's language.
        language: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// More than this build is ready to hold.
    #[error("the schema is too large: {reason}")]
    TooLarge {
        /// What there is too much of.
        reason: String,
    },
    /// A message encoding or schema encoding that nothing here decodes.
    #[error(
        "messages encoded as '{message_encoding}' with a schema in '{schema_encoding}' cannot be decoded"
    )]
    UnknownEncoding {
        /// The channel's message encoding.
        message_encoding: String,
        /// The schema's encoding, empty where there is no schema.
        schema_encoding: String,
    },
    /// A type that is named and nowhere defined, as in bags of ROS 2 before Iron.
    #[error("no definition of {name} is known")]
    NoDefinition {
        /// The type.
        name: String,
    },
    /// A field that was asked for and is not there.
    #[error("there is no field '{path}' in '{name}'")]
    NoSuchField {
        /// The path that was asked for.
        path: String,
        /// The message type.
        name: String,
    },
}

/// Why a payload cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// It ends in the middle of something.
    #[error("the payload ends at byte {len}, in the middle of {what} at byte {at}")]
    Short {
        /// What was being read.
        what: &'static str,
        /// Where it starts.
        at: usize,
        /// The payload's length.
        len: usize,
    },
    /// Something that the encoding does not allow.
    #[error("byte {at}: {reason}")]
    Malformed {
        /// Where.
        at: usize,
        /// What is wrong.
        reason: String,
    },
    /// Something nested deeper than is followed.
    #[error("byte {at}: nested more than {limit} levels deep")]
    TooDeep {
        /// Where.
        at: usize,
        /// The limit.
        limit: usize,
    },
    /// A value that is too large for a column.
    #[error("byte {at}: {reason}")]
    TooLarge {
        /// Where.
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
    /// A table could not be made of it, which is a defect of its layer.
    #[error("cannot make a table of it: {0}")]
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
