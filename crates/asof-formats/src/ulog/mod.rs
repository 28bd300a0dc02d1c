//! PX4's ULog: scanned once, then read in sections like every other recording.

mod format;
mod record;
mod scan;
mod streams;
mod walk;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use asof_core::{
    Channel, ChannelSummary, MetadataEntry, Problem, ProblemKind, Progress, Row, SectionEntry,
    SourceError, Summary, TimeRange, check_by_reading,
};

use crate::counts::counted_channels;
use crate::file::{Format, FormatFile, StoredFormat};
use crate::options::OpenOptions;
use crate::report::Report;
use crate::sections::{Loaded, SectionQuery, Sections, order_of};
use crate::storage::Storage;
use record::{Fields, Head, Pair, kind};
use scan::{Section, ends_definitions, stamp_of};
use streams::{Origin, Streams, put_dropout, put_logged, put_parameter};

/// A PX4 flight log as a [`Source`](asof_core::Source).
///
/// A topic of the log is a topic here, `/vehicle_attitude`; further instances have their number after it,
/// `/sensor_accel/1`. Parameters (initial, changed, defaults), logged strings and dropouts are the topics
/// `/parameters`, `/logged_strings` and `/dropouts`; the logger's information about the vehicle is the metadata
/// `information`. Payloads are CDR with `ros2msg` definitions, so that every reader of ROS 2 recordings can
/// decode them. Times are those of the vehicle's computer, which count from its boot.
///
/// ```no_run
/// use asof_core::Source;
/// use asof_formats::UlogFile;
///
/// let log = UlogFile::open("flight.ulg")?;
/// println!("{} topics", log.summary().channels.len());
/// # Ok::<(), asof_core::SourceError>(())
/// ```
pub type UlogFile = FormatFile<Ulog>;

impl Format for Ulog {
    const NAME: &'static str = "UlogFile";

    fn open(path: &Path, name: String, options: &OpenOptions) -> Result<Self, SourceError> {
        Self::of_file(path, name, options)
    }

    fn summary(&self) -> Arc<Summary> {
        self.report.summary()
    }

    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        if entry.name != INFORMATION || self.info.is_empty() {
            return Err(SourceError::without(self.name(), "metadata", &entry.name));
        }
        Ok(self.info.clone())
    }

    fn check(file: &UlogFile, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        let mut problems = check_by_reading(file, progress)?;
        // These damage nothing in the file, so only the doctor counts them among the problems.
        let (count, milliseconds) = file.shared.dropouts;
        if count > 0 {
            let message = format!(
                "the logger could not keep up {count} times and dropped {:.3} s in all; /dropouts has them",
                milliseconds as f64 / 1000.0
            );
            problems.push(Problem::whole(ProblemKind::Incomplete, message));
        }
        Ok(problems)
    }

    fn section_entries(&self) -> Vec<SectionEntry> {
        let channel = |number: u32| self.channels.get(number as usize).cloned();
        let entry = |section: &Section| SectionEntry {
            offset: section.offset,
            length: section.end.saturating_sub(section.offset),
            uncompressed: section.end.saturating_sub(section.offset),
            compression: String::new(),
            range: section.range,
            channels: Some(
                section
                    .counts
                    .iter()
                    .filter_map(|&(number, _)| channel(number))
                    .collect(),
            ),
        };
        self.sections.iter().map(entry).collect()
    }
}

impl StoredFormat for Ulog {
    fn of(storage: Box<dyn Storage>, options: &OpenOptions) -> Result<Self, SourceError> {
        let scan = scan::scan(&*storage)?;
        let shared = Ulog {
            threads: options.threads_for(&*storage),
            sections: scan.sections,
            channels: scan.streams.channels.clone().into(),
            streams: scan.streams,
            beside: scan.beside,
            info: scan.info,
            dropouts: scan.dropouts,
            report: Report::new(scan.problems),
            storage,
        };
        shared.summarize();
        Ok(shared)
    }
}

/// The name of the logger's information about the vehicle.
const INFORMATION: &str = "information";

/// PX4's ULog: the state that all readers of a file share.
pub struct Ulog {
    storage: Box<dyn Storage>,
    threads: usize,
    sections: Vec<Section>,
    streams: Streams,
    channels: Arc<[Arc<Channel>]>,
    beside: [u32; 3],
    info: BTreeMap<String, String>,
    dropouts: (u64, u64),
    report: Report,
}

impl Sections for Ulog {
    fn name(&self) -> &str {
        self.storage.name()
    }

    fn is_local(&self) -> bool {
        self.storage.is_local()
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn range_of(&self, section: usize) -> TimeRange {
        self.sections[section].range
    }

    fn expected_bytes(&self, section: usize) -> u64 {
        let section = &self.sections[section];
        // CDR has padding where a ULog has none.
        (section.end - section.offset) * 5 / 4
    }

    fn section_count(&self) -> usize {
        self.sections.len()
    }

    fn may_hold(&self, section: usize, wanted: &SectionQuery) -> bool {
        let section = &self.sections[section];
        let mut counts = section.counts.iter();
        wanted.range.overlaps(section.range)
            && counts.any(|&(channel, _)| wanted.wants(channel, &self.channels))
    }

    fn load(&self, section: usize, wanted: &SectionQuery) -> Result<Loaded, SourceError> {
        let place = &self.sections[section];
        let bytes = place.fetch(&*self.storage)?;
        let mut loading = Loading {
            file: self,
            wanted,
            section,
            time: place.time,
            is_definitions: place.is_definitions,
            buffer: Vec::with_capacity(bytes.len()),
            rows: Vec::new(),
        };
        let mut walk = place.walk(&bytes);
        while let Some(met) = walk.next(&self.streams) {
            if let walk::Met::Message(head, body) = met {
                loading.meet(head, body);
            }
        }
        let Loading {
            buffer, mut rows, ..
        } = loading;
        rows.sort_by_key(|row| (row.log_time, row.order));
        Ok(Loaded::of(buffer.into(), rows))
    }

    fn channels(&self) -> Arc<[Arc<Channel>]> {
        Arc::clone(&self.channels)
    }
}

impl Ulog {
    fn summarize(&self) {
        let mut summary = Summary::empty("ulog");
        let said = |key: &str| self.info.get(key).map(String::as_str);
        let software = [said("sys_name"), said("ver_sw")];
        summary.library = software.into_iter().flatten().collect::<Vec<_>>().join(" ");
        summary.size = self.storage.size();
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for section in &self.sections {
            summary.range = summary.range.cover(section.range);
            for &(channel, count) in &section.counts {
                *counts.entry(channel).or_default() += count;
            }
        }
        let numbers: Vec<u32> = (0..self.channels.len() as u32).collect();
        let mut channels = counted_channels(&numbers, &self.channels, &counts);
        summary.messages = channels.iter().map(|entry| entry.messages).sum();
        // Every log may have parameters, strings and dropouts; those without messages are not listed.
        let mut number = 0;
        channels.retain(|entry: &ChannelSummary| {
            let is_beside = self.beside.contains(&number);
            number += 1;
            !is_beside || entry.messages != Some(0)
        });
        summary.channels = channels;
        if !self.info.is_empty() {
            summary.metadata = vec![MetadataEntry {
                name: INFORMATION.into(),
                offset: 0,
            }];
        }
        self.report.set_summary(summary);
    }
}

/// A section that is being read.
struct Loading<'a> {
    file: &'a Ulog,
    wanted: &'a SectionQuery,
    section: usize,
    /// The latest time so far, in microseconds, for messages without a time.
    time: u64,
    is_definitions: bool,
    buffer: Vec<u8>,
    rows: Vec<Row>,
}

impl Loading<'_> {
    fn meet(&mut self, head: Head, body: &[u8]) {
        if ends_definitions(head) {
            self.is_definitions = false;
        }
        let [parameters, logged, dropouts] = self.file.beside;
        let mut fields = Fields(body);
        match head.kind {
            kind::DATA => {
                let stream = fields
                    .u16()
                    .and_then(|id| self.file.streams.find(id, head.offset));
                let Some(stream) = stream else { return };
                let time = stream.layout.time_of(fields.0).unwrap_or(self.time);
                if stamp_of(time).is_some() {
                    self.time = self.time.max(time);
                }
                self.put(head, stream.channel, time, |out| {
                    stream.layout.transcode(fields.0, out)
                });
            }
            kind::LOGGED | kind::LOGGED_TAGGED => {
                let Some(level) = fields.u8() else { return };
                let tag = (head.kind == kind::LOGGED_TAGGED).then(|| fields.u16().unwrap_or(0));
                let Some(time) = fields.u64() else { return };
                self.put(head, logged, time, |out| {
                    put_logged(out, time, level, tag, fields.0);
                    true
                });
            }
            kind::PARAMETER | kind::DEFAULT_PARAMETER => {
                let origin = match (head.kind, self.is_definitions) {
                    (kind::DEFAULT_PARAMETER, _) => Origin::Default(fields.u8().unwrap_or(0)),
                    (_, true) => Origin::Initial,
                    (_, false) => Origin::Changed,
                };
                let Some(pair) = Pair::parse(fields.0) else {
                    return;
                };
                let time = self.time;
                self.put(head, parameters, time, |out| {
                    put_parameter(out, time, &pair, origin)
                });
            }
            kind::DROPOUT => {
                let (time, milliseconds) = (self.time, fields.u16().unwrap_or(0));
                self.put(head, dropouts, time, |out| {
                    put_dropout(out, time, milliseconds);
                    true
                });
            }
            _ => {}
        }
    }

    /// Adds a message if it is wanted and can be encoded.
    fn put(
        &mut self,
        head: Head,
        channel: u32,
        time: u64,
        write: impl FnOnce(&mut Vec<u8>) -> bool,
    ) {
        let Some(stamp) = stamp_of(time).filter(|&stamp| self.wanted.range.contains(stamp)) else {
            return;
        };
        if !self.wanted.wants(channel, &self.file.channels) {
            return;
        }
        let offset = self.buffer.len();
        if !write(&mut self.buffer) {
            self.buffer.truncate(offset);
            return;
        }
        let place = head.offset - self.file.sections[self.section].offset;
        self.rows.push(Row {
            log_time: stamp,
            publish_time: stamp,
            order: order_of(self.section, place),
            offset: offset as u64,
            len: (self.buffer.len() - offset) as u64,
            sequence: 0,
            channel,
            buffer: 0,
        });
    }
}
