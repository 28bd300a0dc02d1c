//! The errors of a recording.

use asof_formats::McapWriteError;
use asof_live::LiveError;

/// Why a robot could not be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The robot could not be subscribed.
    #[error(transparent)]
    Robot(#[from] LiveError),
    /// The recording could not be written.
    #[error(transparent)]
    Write(#[from] McapWriteError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
    /// The thread that writes the recording failed.
    #[error("the recording is incomplete: its writer thread stopped unexpectedly")]
    WriterGone,
}
