//! The errors of a live session.

use crate::{AddressError, ZenohAddress};

/// Why a robot could not be reached or subscribed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// The text is not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Zenoh returned an error.
    #[error("{what}: {cause}")]
    Zenoh {
        /// The operation that failed.
        what: String,
        /// Zenoh's error.
        cause: String,
    },
    /// DDS returned an error.
    #[error("{what}: {cause}")]
    Dds {
        /// The operation that failed.
        what: String,
        /// The error of DDS.
        cause: String,
    },
    /// A DDS address, in a build without DDS.
    #[error(
        "this build does not support DDS; the ready-made packages do: the archive, the Debian package and the wheel `asof`. \
         To build it: cargo install --path crates/asof-cli --features dds"
    )]
    WithoutDds,
    /// A raw key expression for a transport without keys.
    #[error(
        "'{key}' cannot be subscribed: raw keys need Zenoh, and this robot is reached over another transport; name topics instead"
    )]
    NoKeys {
        /// The key expression.
        key: String,
    },
    /// An operation that needs Zenoh.
    #[error(
        "this needs Zenoh, and this robot is reached over another transport; connect to a zenoh:// address"
    )]
    NotZenoh,
    /// A topic is not published.
    #[error("'{topic}' is not published; published topics: {known}")]
    NoSuchTopic {
        /// The topic.
        topic: String,
        /// The topics that are published.
        known: String,
    },
    /// A struct does not fit the messages of a topic.
    #[error(transparent)]
    Misfit(#[from] asof_decode::TypedError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
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

/// Zenoh's error message, without the source line that it ends with.
pub(crate) fn said(cause: &zenoh::Error) -> String {
    let text = cause.to_string();
    match text.rfind(" at ") {
        Some(place) if text[place..].contains(".rs:") => text[..place].to_owned(),
        _ => text,
    }
}
