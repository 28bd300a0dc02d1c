//! The destination of a recording.

use std::collections::BTreeMap;
use std::io;

use asof_core::{Message, Stamp};
use asof_formats::{McapWriteError, McapWriter, McapWriterOptions};

use crate::RecordOutput;

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
    /// How many of the last messages the operating system does not have yet: they are lost if it refuses them.
    fn unflushed(&self) -> u64 {
        0
    }
    fn finish(self: Box<Self>) -> Result<(), McapWriteError>;
}

/// A recording whose destination is opened for the first message. Without a message it is not opened.
pub(crate) struct Late<W: RecordOutput> {
    open: Option<Box<dyn FnOnce() -> io::Result<W> + Send>>,
    options: McapWriterOptions,
    /// Metadata that was noted before the first message.
    notes: Vec<(String, Tags)>,
    writer: Option<McapWriter<W>>,
}

impl<W: RecordOutput> Late<W> {
    pub fn new(
        open: impl FnOnce() -> io::Result<W> + Send + 'static,
        options: McapWriterOptions,
    ) -> Self {
        Late {
            open: Some(Box::new(open)),
            options,
            notes: Vec::new(),
            writer: None,
        }
    }

    fn begin(&mut self) -> Result<(), McapWriteError> {
        if let Some(open) = self.open.take() {
            let mut writer = McapWriter::new(open()?, self.options.clone())?;
            for (name, values) in self.notes.drain(..) {
                writer.write_metadata(&name, values)?;
            }
            self.writer = Some(writer);
        }
        Ok(())
    }
}

impl<W: RecordOutput> Sink for Late<W> {
    fn write(&mut self, message: &Message, _receipt: &Receipt) -> Result<(), McapWriteError> {
        if message.log_time < Stamp::EPOCH {
            // No message for a file: nothing is opened for it.
            return Err(McapWriteError::BeforeEpoch {
                topic: message.channel.topic.clone(),
                time: message.log_time,
            });
        }
        self.begin()?;
        match &mut self.writer {
            Some(writer) => writer.write(message),
            None => Err(io::Error::other("no file is open").into()),
        }
    }

    fn note(&mut self, name: &str, values: &Tags) -> Result<(), McapWriteError> {
        if let Some(writer) = &mut self.writer {
            return writer.write_metadata(name, values.clone());
        }
        self.notes.push((name.to_owned(), values.clone()));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), McapWriteError> {
        self.writer.as_mut().map_or(Ok(()), McapWriter::flush)
    }

    fn unflushed(&self) -> u64 {
        self.writer.as_ref().map_or(0, McapWriter::open_messages)
    }

    fn finish(self: Box<Self>) -> Result<(), McapWriteError> {
        match self.writer {
            Some(writer) => Ok(writer.finish()?.close()?),
            None => Ok(()),
        }
    }
}

impl<W: RecordOutput> Sink for McapWriter<W> {
    fn write(&mut self, message: &Message, _receipt: &Receipt) -> Result<(), McapWriteError> {
        McapWriter::write(self, message)
    }

    fn note(&mut self, name: &str, values: &Tags) -> Result<(), McapWriteError> {
        self.write_metadata(name, values.clone())
    }

    fn flush(&mut self) -> Result<(), McapWriteError> {
        McapWriter::flush(self)
    }

    fn unflushed(&self) -> u64 {
        self.open_messages()
    }

    fn finish(self: Box<Self>) -> Result<(), McapWriteError> {
        Ok(McapWriter::finish(*self)?.close()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::BufWriter;
    use std::sync::Arc;

    use crate::DurableFile;
    use crate::durable::tests::REFUSED;
    use crate::parts::{Parts, SplitOptions};
    use crate::snapshot::{SnapshotOptions, Snapshots};

    use asof_core::{Channel, Source};

    fn message(at: i64) -> Message {
        Message {
            channel: Arc::new(Channel {
                topic: "/t".to_owned(),
                message_encoding: "raw".to_owned(),
                ..Channel::default()
            }),
            log_time: at.into(),
            publish_time: at.into(),
            sequence: 0,
            payload: vec![1, 2, 3].into(),
        }
    }

    #[test]
    fn a_disk_that_refuses_the_end_fails_every_recording() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(format!("{REFUSED}.mcap"));
        let file = DurableFile::new(File::create(&path).expect("a file"), &path).expect("shared");
        let options = McapWriterOptions::default;
        let one = McapWriter::new(BufWriter::new(file), options()).expect("a writer");
        let other = path.with_file_name(format!("{REFUSED}-late.mcap"));
        let open = move || DurableFile::new(File::create(&other)?, &other);
        let split = SplitOptions::default();
        let parts = Parts::create(&path, 0.into(), split, options(), Tags::new());
        let kept = SnapshotOptions::default();
        let snapshots = Snapshots::new(&path, 0.into(), kept, options(), Tags::new());
        let sinks: [Box<dyn Sink>; 4] = [
            Box::new(one),
            Box::new(Late::new(open, options())),
            Box::new(parts.expect("created").0),
            Box::new(snapshots.expect("created").0),
        ];
        for mut sink in sinks {
            let receipt = Receipt {
                at: 1.into(),
                publisher: None,
            };
            // It may fail as soon as something is written, and must at the end.
            let written = sink.write(&message(1), &receipt);
            let written = written.and_then(|()| sink.trigger("a test", 1.into(), 1.into()));
            let error = written.and_then(|()| sink.finish()).expect_err("refused");
            let error = error.to_string();
            assert!(error.contains(REFUSED), "{error}");
            assert!(error.contains("may not be on the disk"), "{error}");
        }
    }

    #[test]
    fn what_is_replaced_stays_until_the_first_message() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.mcap");
        std::fs::write(&path, "precious").expect("written");
        let begun = || {
            let path = path.clone();
            let open = move || File::create(path);
            let mut late = Box::new(Late::new(open, McapWriterOptions::default()));
            let note = Tags::from([("text".to_owned(), "here".to_owned())]);
            late.note("note", &note).expect("noted");
            late.flush().expect("flushed");
            late
        };
        let receipt = Receipt {
            at: 0.into(),
            publisher: None,
        };
        let mut none = begun();
        // MCAP has no such time.
        none.write(&message(-1), &receipt).expect_err("refused");
        none.finish().expect("finished");
        assert_eq!(std::fs::read(&path).expect("read"), b"precious");
        let mut one = begun();
        one.write(&message(1), &receipt).expect("written");
        one.finish().expect("finished");
        let summary = asof_formats::open(&path).expect("a recording").summary();
        assert_eq!(summary.messages, Some(1));
        assert_eq!(summary.metadata[0].name, "note");
    }
}
