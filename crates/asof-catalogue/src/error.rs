//! What can go wrong with a catalogue.

use asof_core::SourceError;

/// Why a catalogue could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogueError {
    /// A file of it, or the folder of recordings, cannot be read or written.
    #[error(transparent)]
    Store(#[from] SourceError),
    /// There is none.
    #[error("{place}: there is no catalogue there; make one with `asof index`")]
    Missing {
        /// Where it was looked for.
        place: String,
    },
    /// The head cannot be understood.
    #[error("{place}: this is not a catalogue of asof's: {reason}; move it away, and index again")]
    BadHead {
        /// The head's address.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The head is of a later version of asof.
    #[error(
        "{place}: the catalogue is of version {found}, and this asof knows {known}; update asof"
    )]
    TooNew {
        /// The head's address.
        place: String,
        /// The version that it has.
        found: u64,
        /// The version that is known here.
        known: u64,
    },
    /// A table cannot be read.
    #[error("{place}: {reason}; the catalogue is damaged: move it away, and index again")]
    BadTable {
        /// The file's address.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Others were quicker, again and again.
    #[error(
        "{place}: others changed the catalogue {attempts} times while this change was made; try again later"
    )]
    Contended {
        /// The head's address.
        place: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// A recording that was named is not in the catalogue.
    #[error("{recording}: the catalogue has no such recording{hint}")]
    UnknownRecording {
        /// What was named.
        recording: String,
        /// What may have been meant, or what to do.
        hint: String,
    },
    /// The system gives no random numbers to name a file with.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
}
