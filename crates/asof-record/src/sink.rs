//! The destination of a recording.

use std::collections::BTreeMap;
use std::io::{Seek, Write};

use asof_core::{Message, Stamp};
use asof_formats::{McapWriteError, McapWriter};

/// Names and values that describe a recording.
pub type Tags = BTreeMap<String, String>;

/// The destination of a recorder's messages.
pub(crate) trait Sink: Send {
    fn write(&mut self, message: &Message) -> Result<(), McapWriteError>;
    /// Writes named text values.
    fn note(&mut self, name: &str, values: &Tags) -> Result<(), McapWriteError>;
    /// A trigger for snapshots fired.
    fn trigger(&mut self, _reason: &str, _at: Stamp) -> Result<(), McapWriteError> {
        Ok(())
    }
    fn tick(&mut self, now: Stamp) -> Result<(), McapWriteError>;
    /// Flushes what was written to the operating system.
    fn flush(&mut self) -> Result<(), McapWriteError>;
    fn finish(self: Box<Self>) -> Result<(), McapWriteError>;
}

impl<W: Write + Seek + Send> Sink for McapWriter<W> {
    fn write(&mut self, message: &Message) -> Result<(), McapWriteError> {
        McapWriter::write(self, message)
    }

    fn note(&mut self, name: &str, values: &Tags) -> Result<(), McapWriteError> {
        self.write_metadata(name, values.clone())
    }

    fn tick(&mut self, now: Stamp) -> Result<(), McapWriteError> {
        McapWriter::tick(self, now)
    }

    fn flush(&mut self) -> Result<(), McapWriteError> {
        McapWriter::flush(self)
    }

    fn finish(self: Box<Self>) -> Result<(), McapWriteError> {
        McapWriter::finish(*self).map(drop)
    }
}
