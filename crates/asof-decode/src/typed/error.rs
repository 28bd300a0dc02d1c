//! Why a message cannot be decoded into a struct.

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
    /// The struct has a field that the schema does not have, or has with another type.
    #[error("field '{path}' of {type_name} on {topic} does not fit {wanted}: {reason}")]
    Misfit {
        /// The topic.
        topic: String,
        /// The type's name in the schema.
        type_name: String,
        /// The struct.
        wanted: &'static str,
        /// The field: `pose.position.x`.
        path: String,
        /// What was found, and what was expected.
        reason: String,
    },
    /// The payload cannot be decoded.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// A value that does not fit its field.
    #[error("field '{path}': {reason}")]
    Value {
        /// The field.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The source has none of the requested topics.
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
