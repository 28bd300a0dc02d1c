//! Errors of a catalogue.

use asof_core::SourceError;

/// Why a catalogue could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogueError {
    /// A file of it, or the folder of recordings, cannot be read or written.
    #[error(transparent)]
    Store(#[from] SourceError),
    /// There is no catalogue.
    #[error("{place}: no catalogue found; create one with `asof index`")]
    Missing {
        /// Where it was looked for.
        place: String,
    },
    /// The head cannot be parsed.
    #[error("{place}: not an asof catalogue: {reason}; move it away and index again")]
    BadHead {
        /// The head's address.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The head was written by a later version of asof.
    #[error(
        "{place}: the catalogue has version {found}, but this asof supports {known}; update asof"
    )]
    TooNew {
        /// The head's address.
        place: String,
        /// The version of the head.
        found: u64,
        /// The version that this crate supports.
        known: u64,
    },
    /// A table cannot be read.
    #[error("{place}: {reason}; the catalogue is damaged: move it away and index again")]
    BadTable {
        /// The file's address.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Other writers replaced the head during every attempt.
    #[error(
        "{place}: other writers changed the catalogue during all {attempts} attempts; try again later"
    )]
    Contended {
        /// The head's address.
        place: String,
        /// The number of attempts.
        attempts: u32,
    },
    /// The named recording is not in the catalogue.
    #[error("{recording}: the catalogue has no such recording{hint}")]
    UnknownRecording {
        /// The name that was given.
        recording: String,
        /// What may have been meant, or what to do.
        hint: String,
    },
    /// The system returns no random numbers for the name of a new file.
    #[error("cannot get random numbers from the system: {0}")]
    Random(String),
}
