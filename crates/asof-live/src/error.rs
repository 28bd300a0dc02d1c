//! What can go wrong.

use crate::{AddressError, ZenohAddress};

/// Why a robot could not be spoken to, or recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// The address is none.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Zenoh refused.
    #[error("{what}: {cause}")]
    Zenoh {
        /// What was tried.
        what: String,
        /// What Zenoh said.
        cause: String,
    },
    /// DDS refused.
    #[error("{what}: {cause}")]
    Dds {
        /// What was tried.
        what: String,
        /// What DDS said.
        cause: String,
    },
    /// An address on DDS, in a build without it.
    #[error(
        "this build does not speak DDS: build it with the feature `dds` (cargo build --features dds)"
    )]
    WithoutDds,
    /// Raw keys are asked for where there are none.
    #[error(
        "'{key}' cannot be subscribed: raw keys are Zenoh's, and this robot is not reached by Zenoh; name topics instead"
    )]
    NoKeys {
        /// The key expression.
        key: String,
    },
    /// Something that only Zenoh can do.
    #[error(
        "this robot is not reached by Zenoh, and only Zenoh can do that; connect to a zenoh:// address"
    )]
    NotZenoh,
    /// Nobody publishes a topic.
    #[error("nobody publishes '{topic}'; there are: {known}")]
    NoSuchTopic {
        /// The topic.
        topic: String,
        /// Those that are published.
        known: String,
    },
    /// A struct does not fit the messages of a topic.
    #[error(transparent)]
    Misfit(#[from] asof_decode::TypedError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
    /// The recording could not be written.
    #[error(transparent)]
    Write(#[from] asof_formats::McapWriteError),
    /// The thread that writes the recording failed.
    #[error("the recording was not finished: its writer stopped unexpectedly")]
    WriterGone,
}

impl LiveError {
    pub(crate) fn session(address: &ZenohAddress, cause: &zenoh::Error) -> Self {
        LiveError::Zenoh {
            what: format!(
                "cannot open a Zenoh session as {} (connect to {:?}, listen on {:?})",
                address.mode.name(),
                address.connect,
                address.listen
            ),
            cause: said(cause),
        }
    }
}

/// What Zenoh says, without the line of its source that says it.
pub(crate) fn said(cause: &zenoh::Error) -> String {
    let text = cause.to_string();
    match text.rfind(" at ") {
        Some(place) if text[place..].contains(".rs:") => text[..place].to_owned(),
        _ => text,
    }
}
