//! The destination of a recording.

use std::collections::BTreeMap;
use std::io::{Seek, Write};

use asof_core::{Message, Stamp};
use asof_formats::{McapWriteError, McapWriter};

/// Names and values that describe a recording.
pub type Tags = BTreeMap<String, String>;

/// How a message came in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Receipt {
    /// When, since the recording began, by a clock that never goes back: spans and ends are measured by it. Log times go
    /// back when somebody sets the clock.
    pub at: Stamp,
    /// The publisher's identifier.
    pub publisher: Option<[u8; 16]>,
}

/// The destination of a recorder's messages.
pub(crate) trait Sink: Send {
    fn write(&mut self, message: &Message, receipt: &Receipt) -> Result<(), McapWriteError>;
    /// Writes named text values.
    fn note(&mut self, name: &str, values: &Tags) -> Result<(), McapWriteError>;
    /// A trigger for snapshots fired at a log time.
    fn trigger(&mut self, _reason: &str, _now: Stamp, _at: Stamp) -> Result<(), McapWriteError> {
        Ok(())
    }
    /// Time goes on: the log time, and the time since the recording began, as in [`Receipt`].
    fn tick(&mut self, _now: Stamp, _at: Stamp) -> Result<(), McapWriteError> {
        Ok(())
    }
    /// Flushes what was written to the operating system.
    fn flush(&mut self) -> Result<(), McapWriteError>;
    fn finish(self: Box<Self>) -> Result<(), McapWriteError>;
}

impl<W: Write + Seek + Send> Sink for McapWriter<W> {
    fn write(&mut self, message: &Message, _receipt: &Receipt) -> Result<(), McapWriteError> {
        McapWriter::write(self, message)
    }

    fn note(&mut self, name: &str, values: &Tags) -> Result<(), McapWriteError> {
        self.write_metadata(name, values.clone())
    }

    fn flush(&mut self) -> Result<(), McapWriteError> {
        McapWriter::flush(self)
    }

    fn finish(self: Box<Self>) -> Result<(), McapWriteError> {
        McapWriter::finish(*self).map(drop)
    }
}
