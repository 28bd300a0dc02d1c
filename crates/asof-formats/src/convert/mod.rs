//! Conversion of any recording to MCAP.

mod generate;
mod ros2;
mod sort;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;

use asof_core::{
    Channel, Message, MessageRef, Problem, ProblemKind, Query, Source, SourceError, Stamp, Summary,
    TimeRange, Topics, read_through,
};

use crate::mcap::is_disk_full;
use crate::{Attachment, Definitions, HiddenRecord, McapWriteError, McapWriter};
use ros2::{Transcoder, Transcoders};
use sort::Sorter;

/// Options of a conversion: what is copied, and how.
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
#[derive(Debug, Clone)]
pub struct ConvertOptions {
    /// The messages to copy.
    pub query: Query,
    /// Whether messages that arrive meanwhile are copied too, until the recording ends or the range of the query has passed.
    pub follow: bool,
    /// New names of topics, by their old ones.
    pub rename: BTreeMap<String, String>,
    /// Whether ROS 1 messages become ROS 2 messages, if `definitions` has their types; types without a counterpart are
    /// copied unchanged, and counted.
    pub to_ros2: bool,
    /// The types of ROS 2.
    pub definitions: Definitions,
    /// Stop before the next message once the output has this many bytes; [`ConvertCounts::next`] is where to go on.
    pub bytes: Option<u64>,
    /// Whether attachments are copied.
    pub attachments: bool,
    /// Whether metadata is copied.
    pub metadata: bool,
    /// Whether messages that were latched before the start of a cut are written at its start. See [`is_latched`].
    pub keep_latched: bool,
    /// Bytes that sorting may hold in memory before it uses the disk.
    pub memory: u64,
    /// The folder for messages that do not fit into memory; by default the system's temporary folder.
    pub temporary: Option<PathBuf>,
}

impl Default for ConvertOptions {
    fn default() -> Self {
        ConvertOptions {
            query: Query::all(),
            follow: false,
            rename: BTreeMap::new(),
            to_ros2: false,
            definitions: Definitions::standard(),
            bytes: None,
            attachments: true,
            metadata: true,
            keep_latched: true,
            memory: 48 << 20,
            temporary: None,
        }
    }
}

/// The result of a conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvertCounts {
    /// Messages written, including latched ones.
    pub messages: u64,
    /// Latched messages from before the start.
    pub latched: u64,
    /// ROS 1 messages converted to ROS 2.
    pub transcoded: u64,
    /// ROS 1 types that were copied unchanged, although ROS 2 was requested.
    pub kept: BTreeMap<String, ForeignType>,
    /// Attachments copied.
    pub attachments: u64,
    /// Metadata records copied.
    pub metadata: u64,
    /// Private records of the writer, copied unchanged.
    pub private: u64,
    /// Messages after the year 2262, copied with their times although no reader of asof shows them.
    pub beyond_time: u64,
    /// From the first message written to the last.
    pub range: TimeRange,
    /// The time of the first message that was not written, if [`ConvertOptions::bytes`] was reached.
    pub next: Option<Stamp>,
    /// Whether the messages were so unsorted that they were sorted on disk.
    pub sorted_on_disk: bool,
    /// Attachments and metadata that could not be read. Other problems are those of the recording.
    pub problems: Vec<Problem>,
}

/// A type without a counterpart in ROS 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignType {
    /// Why it has none.
    pub reason: String,
    /// The number of messages that were copied unchanged.
    pub messages: u64,
}

/// Why a conversion failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The input could not be read.
    #[error(transparent)]
    Read(#[from] SourceError),
    /// The output could not be written.
    #[error(transparent)]
    Write(#[from] McapWriteError),
    /// There was no space to sort.
    #[error("cannot sort the messages in temporary files: {0}{hint}", hint = full_hint(.0))]
    Sort(#[source] io::Error),
}

fn full_hint(error: &io::Error) -> &'static str {
    if is_disk_full(error) {
        "; the disk is full: free some space, or write to another disk"
    } else {
        ""
    }
}

/// Writes the matching messages, sorted by log time, with attachments, metadata, and private records of the writer.
///
/// Messages from before 1970, which do not fit MCAP, are written with its first instant and counted among the
/// problems; those after 2262, which do not fit a [`Stamp`], are copied with their times.
///
/// Memory is bounded, however large or unsorted the recording is: if its parts overlap by more than
/// [`ConvertOptions::memory`], messages are sorted on disk. `progress` receives the number of messages done.
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
    recording: &dyn Source,
    writer: &mut McapWriter<W>,
    options: &ConvertOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<ConvertCounts, ConvertError> {
    let mut conversion = Conversion {
        recording,
        writer,
        options,
        progress,
        targets: HashMap::new(),
        transcoders: Transcoders::default(),
        payload: Vec::new(),
        malformed: BTreeMap::new(),
        before_epoch: 0,
        done: ConvertCounts {
            messages: 0,
            latched: 0,
            transcoded: 0,
            kept: BTreeMap::new(),
            attachments: 0,
            metadata: 0,
            private: 0,
            beyond_time: 0,
            range: TimeRange::EMPTY,
            next: None,
            sorted_on_disk: false,
            problems: Vec::new(),
        },
    };
    conversion.declare_channels()?;
    conversion.write_latched()?;
    conversion.write_messages()?;
    conversion.write_hidden()?;
    conversion.write_extras()?;
    Ok(conversion.conclude())
}

/// Whether the last message of a channel is meant for late subscribers: a latched topic of ROS 1, a
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

/// The profile of the new recording: that of the old one, or ROS 2's if all of it is converted.
pub fn profile_of(summary: &Summary, options: &ConvertOptions) -> String {
    if !options.to_ros2 || summary.profile != "ros1" {
        return summary.profile.clone();
    }
    let mut transcoders = Transcoders::default();
    let mut chosen = summary.channels.iter().filter(|entry| {
        let topics = &options.query.topics;
        topics.contains(&entry.channel.topic) && entry.channel.message_encoding == "ros1"
    });
    let is_whole = chosen.all(|entry| transcoders.of(&entry.channel, &options.definitions).is_ok());
    let profile = if is_whole { "ros2" } else { "" };
    profile.to_owned()
}

/// ROS 2's metadata about a recording is copied, without the compression of its messages or its file, which no longer
/// applies. All other bytes stay as they are.
fn as_written(name: &str, mut metadata: BTreeMap<String, String>) -> BTreeMap<String, String> {
    if name != "rosbag2" {
        return metadata;
    }
    if let Some(text) = metadata.get_mut("serialized_metadata") {
        let plain = |line: &str| -> String {
            let (start, value) = line.split_once(':').unwrap_or((line, ""));
            let is_compression = matches!(start.trim(), "compression_format" | "compression_mode");
            if !is_compression || matches!(value.trim(), "" | "''" | "\"\"") {
                return line.to_owned();
            }
            let end = &line[line.trim_end().len()..];
            format!("{start}: \"\"{end}")
        };
        *text = text.split_inclusive('\n').map(plain).collect();
    }
    metadata
}

/// Each message of `/tf_static` adds frames to those before it, so all of them count, not only the last.
fn holds_static_transforms(channel: &Channel) -> bool {
    channel.topic.ends_with("/tf_static") || channel.topic == "tf_static"
}

struct Conversion<'a, W: Write + Seek> {
    recording: &'a dyn Source,
    writer: &'a mut McapWriter<W>,
    options: &'a ConvertOptions,
    progress: &'a mut dyn FnMut(u64),
    /// New channels by the address of the old ones.
    targets: HashMap<usize, Target>,
    transcoders: Transcoders,
    /// The last payload that was transcoded.
    payload: Vec<u8>,
    /// Messages that do not match their definition, by topic.
    malformed: BTreeMap<String, u64>,
    /// Messages from before 1970.
    before_epoch: u64,
    done: ConvertCounts,
}

/// How the messages of a channel are written.
struct Target {
    /// Kept so that its address is not reused.
    _old: Arc<Channel>,
    new: Arc<Channel>,
    transcoder: Option<Arc<Transcoder>>,
}

impl<W: Write + Seek> Conversion<'_, W> {
    fn declare_channels(&mut self) -> Result<(), ConvertError> {
        for entry in &self.recording.summary().channels {
            if self.options.query.topics.contains(&entry.channel.topic) {
                let (channel, _) = self.target(&entry.channel);
                self.writer.add_channel(&channel)?;
            }
        }
        Ok(())
    }

    /// Writes the latched messages at the start of a cut, so that the part can be used alone.
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
            Topics::named(names)
        };
        let mut latched: Vec<Message> = Vec::new();
        let all_static = Query {
            topics: names(true),
            range: TimeRange::from(..=before),
        };
        for batch in self.recording.read(&all_static)? {
            latched.extend(batch?.iter().map(|message| message.to_message()));
        }
        let last = self.recording.latest_at(&names(false), before)?;
        latched.extend(last.iter().map(|message| message.to_message()));
        latched.sort_by_key(|message| message.log_time);
        for mut message in latched {
            message.log_time = range.start;
            self.done.latched += u64::from(self.write(&message)?);
        }
        Ok(())
    }

    fn write_messages(&mut self) -> Result<(), ConvertError> {
        let ConvertOptions { query, follow, .. } = self.options;
        let follow = *follow && self.recording.growth().is_growing();
        if !follow && self.recording.bytes_held_by_order(query) > self.options.memory {
            return self.sort_messages();
        }
        for batch in read_through(self.recording, query, follow)? {
            let batch = batch?;
            for message in batch.iter() {
                if self.is_full(message.log_time) {
                    return Ok(());
                }
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
        while let Some(message) = sorted.next().map_err(ConvertError::Sort)? {
            if self.is_full(message.log_time) {
                return Ok(());
            }
            self.write(&message)?;
            if self.done.messages.is_multiple_of(4096) {
                (self.progress)(u64::midpoint(read, self.done.messages));
            }
        }
        Ok(())
    }

    /// Copies the records that readers do not see.
    fn write_hidden(&mut self) -> Result<(), ConvertError> {
        let Query { topics, range } = &self.options.query;
        // If the recording is split, messages after all time go to the last part.
        let is_last = self.done.next.is_none() && range.end >= self.recording.summary().range.end;
        for record in self.recording.hidden(topics)? {
            match record? {
                HiddenRecord::Message {
                    channel,
                    log_time,
                    publish_time,
                    sequence,
                    payload,
                } if is_last => {
                    let (target, _) = self.target(&channel);
                    let times = (log_time, publish_time);
                    self.writer
                        .write_beyond(&target, times, sequence, &payload)?;
                    self.done.messages += 1;
                    self.done.beyond_time += 1;
                }
                HiddenRecord::Private { opcode, data } if self.options.metadata => {
                    self.writer.write_private(opcode, &data)?;
                    self.done.private += 1;
                }
                _ => {}
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
                Ok(metadata) => {
                    let metadata = as_written(&entry.name, metadata);
                    self.writer.write_metadata(&entry.name, metadata)?;
                }
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
        let is_early = message.log_time.min(message.publish_time) < Stamp::EPOCH;
        if self.options.rename.is_empty() && !self.options.to_ros2 && !is_early {
            self.writer.write_ref(message)?;
            self.count(message.log_time);
            return Ok(());
        }
        let times = (message.log_time, message.publish_time);
        self.put(message.channel, times, message.sequence, message.payload)
            .map(drop)
    }

    /// Returns whether it could be written.
    fn write(&mut self, message: &Message) -> Result<bool, ConvertError> {
        let times = (message.log_time, message.publish_time);
        self.put(&message.channel, times, message.sequence, &message.payload)
    }

    fn put(
        &mut self,
        channel: &Arc<Channel>,
        times: (Stamp, Stamp),
        sequence: u32,
        payload: &[u8],
    ) -> Result<bool, ConvertError> {
        let (target, transcoder) = self.target(channel);
        let times = self.writable(times);
        let Some(transcoder) = transcoder else {
            if let Some(kept) = self.done.kept.get_mut(channel.type_name()) {
                kept.messages += 1;
            }
            self.writer.put(&target, times, sequence, payload)?;
            self.count(times.0);
            return Ok(true);
        };
        if transcoder.transcode(payload, &mut self.payload).is_err() {
            *self.malformed.entry(channel.topic.clone()).or_default() += 1;
            return Ok(false);
        }
        self.writer.put(&target, times, sequence, &self.payload)?;
        self.done.transcoded += 1;
        self.count(times.0);
        Ok(true)
    }

    /// MCAP counts from 1970. Earlier times are clamped to it, and counted.
    fn writable(&mut self, (log_time, publish_time): (Stamp, Stamp)) -> (Stamp, Stamp) {
        if log_time.min(publish_time) < Stamp::EPOCH {
            self.before_epoch += 1;
        }
        (log_time.max(Stamp::EPOCH), publish_time.max(Stamp::EPOCH))
    }

    /// Whether the output has reached its size; messages with equal times stay together.
    fn is_full(&mut self, next: Stamp) -> bool {
        let is_full = self
            .options
            .bytes
            .is_some_and(|bytes| self.writer.bytes() >= bytes)
            && !self.done.range.is_empty()
            && next > self.done.range.end;
        if is_full {
            self.done.next = Some(next);
        }
        is_full
    }

    fn conclude(mut self) -> ConvertCounts {
        for (topic, count) in self.malformed {
            let message =
                format!("{count} messages do not match their definition and were skipped");
            self.done.problems.push(Problem {
                topic: Some(topic),
                ..Problem::whole(ProblemKind::BadRecord, message)
            });
        }
        if self.before_epoch > 0 {
            let message = format!(
                "{} messages have a time before 1970, which MCAP cannot hold; they were written with the time 1970-01-01T00:00:00Z",
                self.before_epoch
            );
            let problem = Problem::whole(ProblemKind::BadTime, message);
            self.done.problems.push(problem);
        }
        self.done.kept.retain(|_, kept| kept.messages > 0);
        self.done
    }

    fn count(&mut self, log_time: Stamp) {
        self.done.messages += 1;
        self.done.range = self.done.range.cover_stamp(log_time);
    }

    /// The new channel, and how its messages are converted, if they are.
    fn target(&mut self, channel: &Arc<Channel>) -> (Arc<Channel>, Option<Arc<Transcoder>>) {
        let key = Arc::as_ptr(channel) as usize;
        if let Some(target) = self.targets.get(&key) {
            return (Arc::clone(&target.new), target.transcoder.clone());
        }
        let mut transcoder = None;
        if self.options.to_ros2 && channel.message_encoding == "ros1" {
            match self.transcoders.of(channel, &self.options.definitions) {
                Ok(found) => transcoder = Some(Arc::new(found)),
                Err(reason) => {
                    let kept = ForeignType {
                        reason,
                        messages: 0,
                    };
                    self.done
                        .kept
                        .entry(channel.type_name().to_owned())
                        .or_insert(kept);
                }
            }
        }
        let made = transcoder.as_ref().map_or(channel, |found| &found.channel);
        let new = match self.options.rename.get(&channel.topic) {
            Some(topic) => Arc::new(Channel {
                topic: topic.clone(),
                ..Channel::clone(made)
            }),
            None => Arc::clone(made),
        };
        let target = Target {
            _old: Arc::clone(channel),
            new: Arc::clone(&new),
            transcoder: transcoder.clone(),
        };
        self.targets.insert(key, target);
        (new, transcoder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_of_rosbag2_keeps_every_byte_that_needs_no_change() {
        let written = |text: &str| {
            let metadata = [("serialized_metadata".to_owned(), text.to_owned())];
            as_written("rosbag2", metadata.into())["serialized_metadata"].clone()
        };
        for text in [
            "a:\n  compression_format: ''\n  compression_mode: \"\"\r\n  b: 'x: y'",
            "compression_format:\nversion: 9",
            "",
        ] {
            assert_eq!(written(text), text);
        }
        let compressed = "a:\r\n  compression_format: zstd\r\n  compression_mode: FILE";
        let plain = "a:\r\n  compression_format: \"\"\r\n  compression_mode: \"\"";
        assert_eq!(written(compressed), plain);
    }
}
