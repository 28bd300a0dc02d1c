//! Recordings as asof sources: every file is opened here and nowhere else.
//!
//! [`open`] looks at the first bytes of a file and opens it as what it is. MCAP is read by its indexes,
//! and repaired where it is damaged ([`McapFile`]); [`McapWriter`] writes it.

mod mcap;
mod storage;

pub use mcap::{
    Attachment, Compression, McapCounters, McapFile, McapOptions, McapWriteError, McapWriter,
    McapWriterOptions,
};
pub use storage::{Mapped, Storage};
