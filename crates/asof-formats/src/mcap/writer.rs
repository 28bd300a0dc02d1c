//! Writing MCAP.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use asof_core::{Channel, Message, MessageRef, Schema, Stamp};

/// Writes an MCAP file: chunked, indexed, compressed, with checksums.
///
/// A chunk is written completely or not at all, and is handed to the system as soon as it is closed; so
/// a process that is killed leaves a file that is readable up to its last closed chunk. Chunks are
/// closed by size and by age (see [`McapWriterOptions`]).
///
/// ```
/// use std::io::Cursor;
/// use std::sync::Arc;
/// use asof_core::{Channel, Message, Source, Stamp};
/// use asof_formats::{McapFile, McapWriter, McapWriterOptions};
///
/// let channel = Arc::new(Channel { topic: "/hello".into(), ..Channel::default() });
/// let at = Stamp::from_nanos(1);
/// let mut writer = McapWriter::new(Cursor::new(Vec::new()), McapWriterOptions::default())?;
/// writer.write(&Message { channel, log_time: at, publish_time: at, sequence: 0, payload: "hi".into() })?;
/// let bytes = writer.finish()?.into_inner();
///
/// assert_eq!(McapFile::from_bytes("hello", bytes)?.summary().messages, Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct McapWriter<W: Write + Seek> {
    inner: mcap::Writer<Counted<W>>,
    options: McapWriterOptions,
    /// The ids of the channels so far, by address. The `Arc` is kept so that its address cannot be
    /// reused by another channel.
    channels: HashMap<usize, (u16, Arc<Channel>)>,
    /// The first log time of the open chunk.
    chunk_start: Option<Stamp>,
    chunk_bytes: u64,
    chunk_messages: u64,
    written: u64,
    /// Bytes written so far.
    bytes: Arc<AtomicU64>,
}

/// Counts the bytes written.
struct Counted<W> {
    inner: W,
    bytes: Arc<AtomicU64>,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.bytes.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<W: Seek> Seek for Counted<W> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

/// Options of an MCAP file.
#[derive(Debug, Clone)]
pub struct McapWriterOptions {
    /// How chunks are compressed.
    pub compression: Compression,
    /// The compression's level; 0 is its default.
    pub level: u32,
    /// A chunk is closed when it holds this many bytes.
    pub chunk_size: u64,
    /// A chunk is closed when its messages span this much log time; `None` to close by size alone.
    pub chunk_age: Option<Duration>,
    /// The profile of the recording, such as `ros2`.
    pub profile: String,
}

/// The compression of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Small files, fast to read.
    #[default]
    Zstd,
    /// Larger files, faster to write and to read.
    Lz4,
    /// Uncompressed; a reader touches only what it needs.
    None,
}

impl Default for McapWriterOptions {
    fn default() -> Self {
        McapWriterOptions {
            compression: Compression::Zstd,
            level: 0,
            chunk_size: 1 << 20,
            chunk_age: Some(Duration::from_secs(1)),
            profile: String::new(),
        }
    }
}

/// Why a message could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McapWriteError {
    /// MCAP counts time from 1970 on.
    #[error(
        "cannot write a message on {topic}: its time, {time}, is before 1970, which MCAP cannot hold"
    )]
    BeforeEpoch {
        /// The message's topic.
        topic: String,
        /// The time that cannot be written.
        time: Stamp,
    },
    /// The file could not be written.
    #[error("cannot write the recording: {0}")]
    Mcap(#[source] mcap::McapError),
    /// There is no room for it.
    #[error(
        "cannot write the recording: the disk is full ({0}); make room, or name a place elsewhere"
    )]
    DiskFull(#[source] io::Error),
    /// The system refused.
    #[error("cannot write the recording: {0}")]
    Io(#[source] io::Error),
}

impl From<io::Error> for McapWriteError {
    fn from(error: io::Error) -> Self {
        if is_disk_full(&error) {
            McapWriteError::DiskFull(error)
        } else {
            McapWriteError::Io(error)
        }
    }
}

impl From<mcap::McapError> for McapWriteError {
    /// Only the system's message is shown: the words around it add nothing.
    fn from(error: mcap::McapError) -> Self {
        match error {
            mcap::McapError::Io(cause) => cause.into(),
            other => McapWriteError::Mcap(other),
        }
    }
}

/// Whether a disk, or a user's quota on it, is full.
pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

impl McapWriter<BufWriter<File>> {
    /// Creates a file, replacing an existing one.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(
        path: impl AsRef<Path>,
        options: McapWriterOptions,
    ) -> Result<Self, McapWriteError> {
        McapWriter::new(
            BufWriter::with_capacity(1 << 16, File::create(path)?),
            options,
        )
    }
}

impl<W: Write + Seek> McapWriter<W> {
    /// Starts a recording.
    ///
    /// # Errors
    /// When the header cannot be written.
    pub fn new(writer: W, options: McapWriterOptions) -> Result<Self, McapWriteError> {
        let compression = match options.compression {
            Compression::Zstd => Some(mcap::Compression::Zstd),
            Compression::Lz4 => Some(mcap::Compression::Lz4),
            Compression::None => None,
        };
        let bytes = Arc::<AtomicU64>::default();
        let inner = mcap::WriteOptions::new()
            .compression(compression)
            .compression_level(options.level)
            // One thread, so that the same messages give the same bytes on every machine.
            .compression_threads(0)
            // Chunks are closed here, by size and by age.
            .chunk_size(None)
            // A chunk is built in memory and written in one piece: no partial chunk is ever visible.
            .disable_seeking(true)
            .profile(options.profile.clone())
            .library(concat!("asof ", env!("CARGO_PKG_VERSION")))
            .create(Counted {
                inner: writer,
                bytes: Arc::clone(&bytes),
            })?;
        Ok(McapWriter {
            inner,
            options,
            channels: HashMap::new(),
            chunk_start: None,
            chunk_bytes: 0,
            chunk_messages: 0,
            written: 0,
            bytes,
        })
    }

    /// Writes a message.
    ///
    /// # Errors
    /// When its times do not fit MCAP, or the file cannot be written.
    pub fn write(&mut self, message: &Message) -> Result<(), McapWriteError> {
        let times = (message.log_time, message.publish_time);
        self.put(&message.channel, times, message.sequence, &message.payload)
    }

    /// Writes a message of a batch.
    ///
    /// # Errors
    /// As [`McapWriter::write`].
    pub fn write_ref(&mut self, message: MessageRef<'_>) -> Result<(), McapWriteError> {
        let times = (message.log_time, message.publish_time);
        self.put(message.channel, times, message.sequence, message.payload)
    }

    /// Declares a channel, so that it is listed even without messages.
    ///
    /// # Errors
    /// When there are more channels than MCAP has ids, or the file cannot be written.
    pub fn add_channel(&mut self, channel: &Arc<Channel>) -> Result<(), McapWriteError> {
        self.number_of(channel).map(drop)
    }

    /// Adds an attachment to the recording.
    ///
    /// # Errors
    /// When a time is before 1970, or the file cannot be written.
    pub fn attach(&mut self, attachment: &Attachment<'_>) -> Result<(), McapWriteError> {
        self.close_chunk()?;
        let nanos = |time: Stamp| nanos_of(time, attachment.name);
        self.inner.attach(&mcap::Attachment {
            log_time: nanos(attachment.log_time)?,
            create_time: nanos(attachment.create_time)?,
            name: attachment.name.to_owned(),
            media_type: attachment.media_type.to_owned(),
            data: attachment.data.into(),
        })?;
        Ok(())
    }

    /// Adds a metadata record to the recording.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_metadata(
        &mut self,
        name: &str,
        metadata: BTreeMap<String, String>,
    ) -> Result<(), McapWriteError> {
        self.close_chunk()?;
        self.inner.write_metadata(&mcap::records::Metadata {
            name: name.to_owned(),
            metadata,
        })?;
        Ok(())
    }

    /// Writes a message with times that do not fit a [`Stamp`], in a chunk of its own, so that the times of other
    /// chunks are not affected.
    pub(crate) fn write_beyond(
        &mut self,
        channel: &Arc<Channel>,
        (log_time, publish_time): (u64, u64),
        sequence: u32,
        payload: &[u8],
    ) -> Result<(), McapWriteError> {
        let channel_id = self.number_of(channel)?;
        self.close_chunk()?;
        let header = mcap::records::MessageHeader {
            channel_id,
            sequence,
            log_time,
            publish_time,
        };
        self.inner.write_to_known_channel(&header, payload)?;
        self.written += 1;
        self.close_chunk()
    }

    /// Writes a record with an opcode that MCAP reserves for writers (0x80 or higher).
    #[allow(
        clippy::default_trait_access,
        reason = "the type of the options is of a crate that this one does not know"
    )]
    pub(crate) fn write_private(&mut self, opcode: u8, data: &[u8]) -> Result<(), McapWriteError> {
        self.close_chunk()?;
        self.inner
            .write_private_record(opcode, data, Default::default())?;
        Ok(())
    }

    /// Closes the open chunk if it is too old. For live recording: call it regularly, so that the last messages
    /// of a robot that falls silent do not stay in memory.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn tick(&mut self, now: Stamp) -> Result<(), McapWriteError> {
        if self.is_too_old(now) {
            self.close_chunk()?;
        }
        Ok(())
    }

    /// Closes the open chunk and flushes, so that a reader of the file sees everything written so far.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn flush(&mut self) -> Result<(), McapWriteError> {
        self.close_chunk()
    }

    /// The number of messages written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// How many of them are in the open chunk, which is lost if it cannot be written.
    pub fn open_messages(&self) -> u64 {
        self.chunk_messages
    }

    /// The number of bytes written, without the open chunk.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Closes the open chunk, writes the summary, and returns the writer, flushed.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self) -> Result<W, McapWriteError> {
        self.inner.finish()?;
        let mut writer = self.inner.into_inner().inner;
        writer.flush()?;
        Ok(writer)
    }

    pub(crate) fn put(
        &mut self,
        channel: &Arc<Channel>,
        (log_time, publish_time): (Stamp, Stamp),
        sequence: u32,
        payload: &[u8],
    ) -> Result<(), McapWriteError> {
        let (log, publish) = (
            nanos_of(log_time, &channel.topic)?,
            nanos_of(publish_time, &channel.topic)?,
        );
        if self.is_too_old(log_time) || self.chunk_bytes >= self.options.chunk_size {
            self.close_chunk()?;
        }
        let channel_id = self.number_of(channel)?;
        let header = mcap::records::MessageHeader {
            channel_id,
            sequence,
            log_time: log,
            publish_time: publish,
        };
        self.inner.write_to_known_channel(&header, payload)?;
        self.chunk_start = self.chunk_start.or(Some(log_time));
        self.chunk_bytes += payload.len() as u64 + 31;
        self.chunk_messages += 1;
        self.written += 1;
        Ok(())
    }

    fn is_too_old(&self, now: Stamp) -> bool {
        let Some((start, age)) = self.chunk_start.zip(self.options.chunk_age) else {
            return false;
        };
        now.since(start) >= i64::try_from(age.as_nanos()).unwrap_or(i64::MAX)
    }

    fn close_chunk(&mut self) -> Result<(), McapWriteError> {
        self.inner.flush()?;
        self.chunk_start = None;
        self.chunk_bytes = 0;
        self.chunk_messages = 0;
        Ok(())
    }

    fn number_of(&mut self, channel: &Arc<Channel>) -> Result<u16, McapWriteError> {
        let key = Arc::as_ptr(channel) as usize;
        if let Some((id, _)) = self.channels.get(&key) {
            return Ok(*id);
        }
        let schema_id = match channel.schema.as_deref() {
            Some(Schema {
                name,
                encoding,
                data,
            }) => self.inner.add_schema(name, encoding, data)?,
            None => 0,
        };
        let id = self.inner.add_channel(
            schema_id,
            &channel.topic,
            &channel.message_encoding,
            &channel.metadata,
        )?;
        self.channels.insert(key, (id, Arc::clone(channel)));
        Ok(id)
    }
}

/// A file to attach to a recording.
#[derive(Debug, Clone, Copy)]
pub struct Attachment<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its media type: `text/yaml`.
    pub media_type: &'a str,
    /// When it is added.
    pub log_time: Stamp,
    /// When the file itself was created.
    pub create_time: Stamp,
    /// Its contents.
    pub data: &'a [u8],
}

fn nanos_of(time: Stamp, topic: &str) -> Result<u64, McapWriteError> {
    time.to_unsigned_nanos()
        .ok_or_else(|| McapWriteError::BeforeEpoch {
            topic: topic.to_owned(),
            time,
        })
}
