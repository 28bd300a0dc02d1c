//! From any recording into MCAP.

mod sort;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;

use asof_core::{
    Channel, Message, MessageRef, Problem, ProblemKind, Query, SourceError, Stamp, TimeRange,
    Topics,
};

use crate::{Attachment, McapWriteError, McapWriter, Recording};
use sort::Sorter;

/// What of a recording goes into the new one, and how.
#[derive(Debug, Clone)]
pub struct ConvertOptions {
    /// Which messages.
    pub query: Query,
    /// New names of topics, by their old ones.
    pub rename: BTreeMap<String, String>,
    /// Whether attachments come along.
    pub attachments: bool,
    /// Whether named sets of text come along.
    pub metadata: bool,
    /// Whether what was latched before the start of a cut stands at its start. See [`is_latched`].
    pub keep_latched: bool,
    /// Bytes that sorting may hold before it goes to disk.
    pub memory: u64,
    /// Where sorting puts what does not fit into memory; the system's folder where none is given.
    pub temporary: Option<PathBuf>,
}

impl Default for ConvertOptions {
    fn default() -> Self {
        ConvertOptions {
            query: Query::all(),
            rename: BTreeMap::new(),
            attachments: true,
            metadata: true,
            keep_latched: true,
            memory: 48 << 20,
            temporary: None,
        }
    }
}

/// What went into the new recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    /// Messages, those that were latched before included.
    pub messages: u64,
    /// Messages from before the start, which were latched then.
    pub latched: u64,
    /// Attachments.
    pub attachments: u64,
    /// Named sets of text.
    pub metadata: u64,
    /// From the first message written to the last.
    pub range: TimeRange,
    /// Whether the messages were so far out of order that they were sorted on disk.
    pub sorted_on_disk: bool,
    /// What beside the messages could not be read. The recording itself has its other problems.
    pub problems: Vec<Problem>,
}

/// Why a conversion stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The input could not be read.
    #[error(transparent)]
    Read(#[from] SourceError),
    /// The output could not be written.
    #[error(transparent)]
    Write(#[from] McapWriteError),
    /// There was no room to sort.
    #[error("cannot sort the messages in temporary files: {0}; is the disk full?")]
    Sort(#[source] io::Error),
}

/// Writes the messages that match, in order of log time, and what lies beside them.
///
/// Memory is bounded, however large or disordered the recording is: where its parts overlap by more than
/// [`ConvertOptions::memory`], messages are sorted on disk. `progress` hears how many messages are done.
///
/// The caller finishes the writer.
///
/// ```
/// use std::io::Cursor;
/// use asof_formats::{ConvertOptions, McapFile, McapWriter, McapWriterOptions, convert};
/// # let empty = McapWriter::new(Cursor::new(Vec::new()), Default::default())?.finish()?.into_inner();
/// # let recording = McapFile::from_bytes("empty", empty)?;
/// let mut writer = McapWriter::new(Cursor::new(Vec::new()), McapWriterOptions::default())?;
/// let done = convert(&recording, &mut writer, &ConvertOptions::default(), &mut |_| {})?;
/// writer.finish()?;
/// assert_eq!(done.messages, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When the input cannot be read at all, or the output or a temporary file cannot be written.
pub fn convert<W: Write + Seek>(
    recording: &dyn Recording,
    writer: &mut McapWriter<W>,
    options: &ConvertOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Converted, ConvertError> {
    let mut conversion = Conversion {
        recording,
        writer,
        options,
        progress,
        renamed: HashMap::new(),
        done: Converted {
            messages: 0,
            latched: 0,
            attachments: 0,
            metadata: 0,
            range: TimeRange::EMPTY,
            sorted_on_disk: false,
            problems: Vec::new(),
        },
    };
    conversion.declare_channels()?;
    conversion.write_latched()?;
    conversion.write_messages()?;
    conversion.write_extras()?;
    Ok(conversion.done)
}

/// Whether the last message of a channel is meant for those who come later: a latched topic of ROS 1, a
/// transient-local one of ROS 2, and `/tf_static` in any case.
pub fn is_latched(channel: &Channel) -> bool {
    let said = |name: &str| channel.metadata.get(name).map(String::as_str);
    let is_latching = matches!(said("latching"), Some("1" | "true" | "True"));
    let is_transient_local = said("offered_qos_profiles").is_some_and(|profiles| {
        profiles.lines().any(|line| {
            let line = line.trim_start_matches([' ', '-']);
            matches!(
                line.trim_end(),
                "durability: 1" | "durability: transient_local"
            )
        })
    });
    is_latching || is_transient_local || holds_static_transforms(channel)
}

/// Each message of `/tf_static` adds frames to those before it, so all of them count, not the last alone.
fn holds_static_transforms(channel: &Channel) -> bool {
    channel.topic.ends_with("/tf_static") || channel.topic == "tf_static"
}

struct Conversion<'a, W: Write + Seek> {
    recording: &'a dyn Recording,
    writer: &'a mut McapWriter<W>,
    options: &'a ConvertOptions,
    progress: &'a mut dyn FnMut(u64),
    /// New channels by the address of the old ones, which are kept so that no other gets their address.
    renamed: HashMap<usize, (Arc<Channel>, Arc<Channel>)>,
    done: Converted,
}

impl<W: Write + Seek> Conversion<'_, W> {
    fn declare_channels(&mut self) -> Result<(), ConvertError> {
        for entry in &self.recording.summary().channels {
            if self.options.query.topics.contains(&entry.channel.topic) {
                let channel = self.channel(&entry.channel);
                self.writer.add_channel(&channel)?;
            }
        }
        Ok(())
    }

    /// What was latched when the cut begins stands at its beginning, so that the part can be used alone.
    fn write_latched(&mut self) -> Result<(), ConvertError> {
        let Query { topics, range } = &self.options.query;
        let summary = self.recording.summary();
        if !self.options.keep_latched || range.start <= summary.range.start || range.is_empty() {
            return Ok(());
        }
        let before = range.start.plus_nanos(-1);
        let names = |are_static: bool| {
            let names = summary.channels.iter().filter_map(|entry| {
                let channel = &entry.channel;
                let is_meant = is_latched(channel)
                    && topics.contains(&channel.topic)
                    && holds_static_transforms(channel) == are_static;
                is_meant.then(|| channel.topic.clone())
            });
            Topics::Named(names.collect())
        };
        let mut latched: Vec<Message> = Vec::new();
        let all_static = Query {
            topics: names(true),
            range: TimeRange::from(..=before),
        };
        for batch in self.recording.read(&all_static)? {
            latched.extend(batch?.iter().map(|message| message.to_message()));
        }
        let last = self.recording.backfill(&names(false), before)?;
        latched.extend(last.iter().map(|message| message.to_message()));
        latched.sort_by_key(|message| message.log_time);
        for mut message in latched {
            message.log_time = range.start;
            message.channel = self.channel(&message.channel);
            self.write(&message)?;
            self.done.latched += 1;
        }
        Ok(())
    }

    fn write_messages(&mut self) -> Result<(), ConvertError> {
        let query = &self.options.query;
        if self.recording.bytes_held_by_order(query) > self.options.memory {
            return self.sort_messages();
        }
        for batch in self.recording.read(query)? {
            let batch = batch?;
            for message in batch.iter() {
                self.write_ref(message)?;
            }
            (self.progress)(self.done.messages);
        }
        Ok(())
    }

    fn sort_messages(&mut self) -> Result<(), ConvertError> {
        let mut sorter = Sorter::new(self.options.memory, self.options.temporary.clone());
        let mut read = 0;
        for batch in self.recording.read_in_file_order(&self.options.query)? {
            let batch = batch?;
            for message in batch.iter() {
                sorter.push(&message).map_err(ConvertError::Sort)?;
            }
            read += batch.len() as u64;
            (self.progress)(read / 2);
        }
        let mut sorted = sorter.finish().map_err(ConvertError::Sort)?;
        self.done.sorted_on_disk = sorted.is_on_disk();
        while let Some(mut message) = sorted.next().map_err(ConvertError::Sort)? {
            message.channel = self.channel(&message.channel);
            self.write(&message)?;
            if self.done.messages.is_multiple_of(4096) {
                (self.progress)(u64::midpoint(read, self.done.messages));
            }
        }
        Ok(())
    }

    fn write_extras(&mut self) -> Result<(), ConvertError> {
        let summary = self.recording.summary();
        for entry in summary
            .attachments
            .iter()
            .filter(|_| self.options.attachments)
        {
            let data = match self.recording.attachment(entry) {
                Ok(data) => data,
                Err(error) => {
                    self.leave_out(entry.offset, error)?;
                    continue;
                }
            };
            self.writer.attach(&Attachment {
                name: &entry.name,
                media_type: &entry.media_type,
                log_time: entry.log_time.unwrap_or(Stamp::EPOCH),
                create_time: entry.create_time.unwrap_or(Stamp::EPOCH),
                data: &data,
            })?;
            self.done.attachments += 1;
        }
        for entry in summary.metadata.iter().filter(|_| self.options.metadata) {
            match self.recording.metadata(entry) {
                Ok(metadata) => self.writer.write_metadata(&entry.name, metadata)?,
                Err(error) => {
                    self.leave_out(entry.offset, error)?;
                    continue;
                }
            }
            self.done.metadata += 1;
        }
        Ok(())
    }

    fn leave_out(&mut self, offset: u64, error: SourceError) -> Result<(), ConvertError> {
        let SourceError::Unreadable { reason, .. } = error else {
            return Err(error.into());
        };
        let problem = Problem::at(ProblemKind::BadRecord, offset, reason);
        self.done.problems.push(problem);
        Ok(())
    }

    fn write_ref(&mut self, message: MessageRef<'_>) -> Result<(), ConvertError> {
        if self.options.rename.contains_key(&message.channel.topic) {
            let mut message = message.to_message();
            message.channel = self.channel(&message.channel);
            return self.write(&message);
        }
        self.writer.write_ref(message)?;
        self.count(message.log_time);
        Ok(())
    }

    fn write(&mut self, message: &Message) -> Result<(), ConvertError> {
        self.writer.write(message)?;
        self.count(message.log_time);
        Ok(())
    }

    fn count(&mut self, log_time: Stamp) {
        self.done.messages += 1;
        self.done.range = self.done.range.cover_stamp(log_time);
    }

    /// The channel under its new name.
    fn channel(&mut self, channel: &Arc<Channel>) -> Arc<Channel> {
        let Some(topic) = self.options.rename.get(&channel.topic) else {
            return Arc::clone(channel);
        };
        let (_, renamed) = self
            .renamed
            .entry(Arc::as_ptr(channel) as usize)
            .or_insert_with(|| {
                let renamed = Channel {
                    topic: topic.clone(),
                    ..Channel::clone(channel)
                };
                (Arc::clone(channel), Arc::new(renamed))
            });
        Arc::clone(renamed)
    }
}
