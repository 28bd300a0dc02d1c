//! Why a message is not the struct that was asked for.

use std::sync::Arc;

use asof_core::SourceError;

use crate::{PayloadError, SchemaError};

/// Why messages cannot be decoded into a struct.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TypedError {
    /// The channel's schema cannot be used.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The struct has a field that is not in the schema, or is of another type there.
    #[error("field '{path}' of {type_name} on {topic} does not fit {wanted}: {reason}")]
    Misfit {
        /// The topic.
        topic: String,
        /// The type in the words of the schema.
        type_name: String,
        /// The struct.
        wanted: &'static str,
        /// The field: `pose.position.x`.
        path: String,
        /// What is there, and what was wanted.
        reason: String,
    },
    /// The payload cannot be decoded.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// A value that its field cannot hold.
    #[error("field '{path}': {reason}")]
    Value {
        /// The field.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The source has none of the topics that were asked for.
    #[error("there is no topic {topics}")]
    NoSuchTopic {
        /// The topics.
        topics: String,
    },
    /// The source cannot be read.
    #[error(transparent)]
    Source(Arc<SourceError>),
}

impl From<SourceError> for TypedError {
    fn from(error: SourceError) -> Self {
        TypedError::Source(Arc::new(error))
    }
}
