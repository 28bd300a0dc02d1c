//! Snapshots: the last minute, kept in memory or on disk, and written when a trigger fires.

use std::collections::VecDeque;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use asof_core::{Message, Stamp};
use asof_formats::{McapWriteError, McapWriter, McapWriterOptions};
use parking_lot::Mutex;

use crate::backlog::{Backlog, Memory, wrote};
use crate::last::{LastMessages, Scope};
use crate::parts::PartNames;
use crate::ring::Ring;
use crate::sink::{Receipt, Sink, Tags};
use crate::trigger::{Lookout, Trigger};
use crate::{DurableFile, RecordOutput};

/// What is kept, and which triggers write it.
///
/// ```
/// use std::time::Duration;
/// use asof_record::SnapshotOptions;
///
/// let options = SnapshotOptions {
///     keep: Duration::from_secs(60),
///     after: Duration::from_secs(30),
///     triggers: vec!["/bumper.data == true".parse()?],
///     ..SnapshotOptions::default()
/// };
/// # Ok::<(), asof_record::TriggerError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotOptions {
    /// How long before the trigger a snapshot begins.
    pub keep: Duration,
    /// How long after the trigger a snapshot ends. Another trigger in the meantime extends it.
    pub after: Duration,
    /// The most bytes that are kept; the oldest messages are evicted first, and counted.
    pub bytes: u64,
    /// The triggers; [`Recorder::trigger`](crate::Recorder::trigger) works without any.
    pub triggers: Vec<Trigger>,
    /// The folder for a ring of files; `None` keeps messages in memory.
    pub ring: Option<PathBuf>,
}

impl Default for SnapshotOptions {
    /// A minute before and half a minute after, in 1 GB.
    fn default() -> Self {
        SnapshotOptions {
            keep: Duration::from_mins(1),
            after: Duration::from_secs(30),
            bytes: 1_000_000_000,
            triggers: Vec::new(),
            ring: None,
        }
    }
}

/// The state of a recording in snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotReport {
    /// The files, oldest first.
    pub files: Vec<PathBuf>,
    /// How many triggers fired.
    pub triggered: u64,
    /// The reason of the last trigger.
    pub last: Option<String>,
    /// Whether a file is being written.
    pub is_writing: bool,
    /// Messages in the files.
    pub written: u64,
    /// Messages that are kept now.
    pub kept: u64,
    /// Memory that they keep alive, or their size on disk.
    pub kept_bytes: u64,
    /// Messages that were evicted before their time to stay within the byte budget.
    pub crowded_out: u64,
    /// Why triggers can never fire.
    pub problems: Vec<String>,
}

/// The most bytes for messages from before the snapshot that are still valid: the last message of each topic, and all
/// messages of topics that are kept for late joiners. Part of the byte budget.
const MOST_STANDING_BYTES: u64 = 64 << 20;
/// Messages are kept this much longer than requested.
const KEEP_MARGIN: Duration = Duration::from_secs(1);
/// At most this many reasons of one snapshot are written.
const MOST_REASONS: usize = 1_000;
/// At most this many notes are kept for the next snapshot.
const MOST_NOTES: usize = 1_000;

/// Keeps messages, and writes them when a trigger fires.
pub(crate) struct Snapshots {
    names: PartNames,
    options: SnapshotOptions,
    writer: McapWriterOptions,
    tags: Tags,
    kept: Backlog,
    standing: LastMessages,
    lookout: Lookout,
    open: Option<Open>,
    /// Notes that were made while no file was open, and when, by the clock that never goes back.
    notes: VecDeque<(Stamp, String, Tags)>,
    /// The latest time by that clock.
    at: Stamp,
    report: Arc<Mutex<SnapshotReport>>,
}

struct Open {
    writer: McapWriter<BufWriter<DurableFile>>,
    /// When it ends, by the clock that never goes back.
    until: Stamp,
    /// The reasons, and their times.
    reasons: Tags,
}

impl Snapshots {
    pub fn new(
        path: &Path,
        start: Stamp,
        options: SnapshotOptions,
        writer: McapWriterOptions,
        tags: Tags,
    ) -> Result<(Self, Arc<Mutex<SnapshotReport>>), McapWriteError> {
        let report = Arc::<Mutex<SnapshotReport>>::default();
        let bytes = options.bytes.saturating_sub(MOST_STANDING_BYTES);
        let mut names = PartNames::new(path, start);
        // This one's files come after those of earlier runs.
        names.find_earlier()?;
        // A little longer, so that the snapshot begins exactly where it should.
        let age = options.keep.saturating_add(KEEP_MARGIN);
        let bytes = bytes.max(options.bytes / 2);
        let kept = match &options.ring {
            Some(folder) => Backlog::Disk(Box::new(Ring::new(folder, age, bytes, &writer)?)),
            None => Backlog::Memory(Memory::new(age, bytes)),
        };
        let snapshots = Snapshots {
            names,
            writer,
            tags,
            kept,
            standing: LastMessages::new(Scope::All, MOST_STANDING_BYTES.min(options.bytes / 2)),
            lookout: Lookout::new(options.triggers.clone()),
            options,
            open: None,
            notes: VecDeque::new(),
            at: Stamp::EPOCH,
            report: Arc::clone(&report),
        };
        Ok((snapshots, report))
    }

    /// Begins a file with the kept messages, or extends the open one.
    fn happened(&mut self, reason: &str, now: Stamp, at: Stamp) -> Result<(), McapWriteError> {
        {
            let mut report = self.report.lock();
            report.triggered += 1;
            report.last = Some(reason.to_owned());
        }
        let until = later(at, self.options.after);
        if self.open.is_none() {
            self.begin(now, at)?;
        }
        if let Some(open) = &mut self.open {
            open.until = open.until.max(until);
            if open.reasons.len() < MOST_REASONS {
                open.reasons
                    .insert(now.nanos().to_string(), reason.to_owned());
            }
        }
        Ok(())
    }

    fn begin(&mut self, now: Stamp, at: Stamp) -> Result<(), McapWriteError> {
        let (path, file) = self.names.create()?;
        let file = BufWriter::with_capacity(1 << 17, DurableFile::new(file, &path)?);
        let mut writer = McapWriter::new(file, self.writer.clone())?;
        if !self.tags.is_empty() {
            writer.write_metadata("tags", self.tags.clone())?;
        }
        let asked = earlier(at, self.options.keep);
        for (noted, name, values) in self.notes.drain(..) {
            if noted >= asked {
                writer.write_metadata(&name, values)?;
            }
        }
        // Not before what is kept.
        let cut = self.kept.start().map_or(at, |start| start.max(asked));
        // Messages from before that are still valid are logged where the snapshot begins.
        let begins = now.plus_nanos(cut.since(at)).max(Stamp::EPOCH);
        let first = self.kept.first_logged(cut).unwrap_or(begins);
        let mut written = 0;
        for message in self.standing.before(cut, begins.min(first)) {
            written += u64::from(wrote(writer.write(&message))?);
        }
        written += self.kept.copy(cut, &mut writer)?;
        // To disk before anything else can go wrong.
        writer.flush()?;
        let mut report = self.report.lock();
        report.files.push(path);
        report.written += written;
        report.is_writing = true;
        drop(report);
        self.open = Some(Open {
            writer,
            until: at,
            reasons: Tags::new(),
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), McapWriteError> {
        if let Some(mut open) = self.open.take() {
            open.writer.write_metadata("snapshot", open.reasons)?;
            open.writer.finish()?.close()?;
            self.report.lock().is_writing = false;
        }
        Ok(())
    }

    fn tell(&self) {
        let stats = self.kept.stats();
        let mut report = self.report.lock();
        report.kept = stats.messages;
        report.kept_bytes = stats.bytes + self.standing.bytes();
        report.crowded_out = stats.crowded_out;
        report.problems.clone_from(&self.lookout.problems);
    }
}

impl Sink for Snapshots {
    fn write(&mut self, message: &Message, receipt: &Receipt) -> Result<(), McapWriteError> {
        let happened = self.lookout.heard(message, receipt.at);
        if message.log_time < Stamp::from(0) {
            let topic = message.channel.topic.clone();
            let time = message.log_time;
            return Err(McapWriteError::BeforeEpoch { topic, time });
        }
        if let Some(open) = self.open.as_mut() {
            if receipt.at <= open.until {
                open.writer.write(message)?;
                self.report.lock().written += 1;
            } else if happened.is_none() {
                self.end()?;
            }
        }
        self.kept.push(message, receipt.at)?;
        self.standing.keep(message, receipt);
        if let Some(reason) = happened {
            let was_open = self.open.as_ref().map(|open| open.until);
            self.happened(&reason, message.log_time, receipt.at)?;
            // The message was too late for the file as it was, but is within its new end.
            if let (Some(open), Some(until)) = (&mut self.open, was_open)
                && receipt.at > until
            {
                open.writer.write(message)?;
                self.report.lock().written += 1;
            }
        }
        Ok(())
    }

    fn note(&mut self, name: &str, values: &Tags) -> Result<(), McapWriteError> {
        if let Some(open) = &mut self.open {
            return open.writer.write_metadata(name, values.clone());
        }
        if self.notes.len() >= MOST_NOTES {
            self.notes.pop_front();
        }
        let note = (self.at, name.to_owned(), values.clone());
        self.notes.push_back(note);
        Ok(())
    }

    fn trigger(&mut self, reason: &str, now: Stamp, at: Stamp) -> Result<(), McapWriteError> {
        self.happened(reason, now, at)
    }

    fn tick(&mut self, now: Stamp, at: Stamp) -> Result<(), McapWriteError> {
        self.at = at;
        if let Some(reason) = self.lookout.tick(at) {
            self.happened(&reason, now, at)?;
        }
        self.tell();
        match &mut self.open {
            Some(open) if at > open.until => self.end(),
            _ => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), McapWriteError> {
        match &mut self.open {
            Some(open) => open.writer.flush(),
            None => Ok(()),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<(), McapWriteError> {
        self.end()?;
        self.tell();
        Ok(())
    }
}

fn later(at: Stamp, by: Duration) -> Stamp {
    let by = i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
    at.nanos().saturating_add(by).into()
}

fn earlier(at: Stamp, by: Duration) -> Stamp {
    let by = i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
    at.nanos().saturating_sub(by).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use asof_core::{Channel, FileParts, Query, Source};
    use asof_formats::McapFile;

    const SECOND: i64 = 1_000_000_000;

    fn channel(topic: &str) -> Arc<Channel> {
        Arc::new(Channel {
            topic: topic.to_owned(),
            message_encoding: "cdr".to_owned(),
            schema: Some(Arc::new(asof_core::Schema {
                name: "std_msgs/msg/UInt8".to_owned(),
                encoding: "ros2msg".to_owned(),
                data: b"uint8 data".to_vec().into(),
            })),
            ..Channel::default()
        })
    }

    fn message(channel: &Arc<Channel>, second: i64, value: u8) -> Message {
        Message {
            channel: Arc::clone(channel),
            log_time: (second * SECOND).into(),
            publish_time: (second * SECOND).into(),
            sequence: 0,
            payload: vec![0, 1, 0, 0, value].into(),
        }
    }

    /// A message that came when it was logged.
    fn write(snapshots: &mut Snapshots, message: &Message) -> Result<(), McapWriteError> {
        let receipt = Receipt {
            at: message.log_time,
            publisher: None,
        };
        snapshots.write(message, &receipt)
    }

    fn tick(snapshots: &mut Snapshots, second: i64) -> Result<(), McapWriteError> {
        let now = (second * SECOND).into();
        snapshots.tick(now, now)
    }

    fn made(path: &Path, trigger: &str) -> (Snapshots, Arc<Mutex<SnapshotReport>>) {
        made_in(path, trigger, None)
    }

    fn made_in(
        path: &Path,
        trigger: &str,
        ring: Option<PathBuf>,
    ) -> (Snapshots, Arc<Mutex<SnapshotReport>>) {
        let options = SnapshotOptions {
            ring,
            keep: Duration::from_secs(10),
            after: Duration::from_secs(5),
            triggers: vec![trigger.parse().expect("a trigger")],
            ..SnapshotOptions::default()
        };
        let made = Snapshots::new(
            path,
            0.into(),
            options,
            McapWriterOptions::default(),
            Tags::new(),
        );
        made.expect("snapshots")
    }

    /// The seconds of a topic's messages in a file.
    fn seconds(path: &Path, topic: &str) -> Vec<i64> {
        let file = McapFile::open(path).expect("a recording");
        let query = Query::topics([topic]);
        let batches = file.read(&query).expect("read");
        let mut found = Vec::new();
        for batch in batches {
            let batch = batch.expect("a batch");
            found.extend(
                batch
                    .iter()
                    .map(|message| message.log_time.nanos() / SECOND),
            );
        }
        found
    }

    #[test]
    fn a_snapshot_has_what_was_before_and_after_and_no_more() {
        let folder = tempfile::tempdir().expect("a folder");
        let ring = folder.path().join("ring");
        for (name, ring) in [("memory.mcap", None), ("disk.mcap", Some(ring.clone()))] {
            has_before_and_after(&folder.path().join(name), ring);
        }
        let left = std::fs::read_dir(ring).expect("the folder").count();
        assert_eq!(left, 0, "a ring goes with its recorder");
    }

    #[test]
    fn what_was_noted_before_is_in_the_snapshot_that_has_its_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut snapshots, report) = made(&folder.path().join("run.mcap"), "/bumper.data == 1");
        let (scan, bumper) = (channel("/scan"), channel("/bumper"));
        for second in 0..40 {
            write(&mut snapshots, &message(&scan, second, 0)).expect("kept");
            tick(&mut snapshots, second).expect("written");
            if [3, 25, 31].contains(&second) {
                let text = [("text".to_owned(), format!("at {second}"))];
                let text = text.into_iter().collect();
                snapshots.note("note", &text).expect("noted");
            }
            if second == 30 {
                write(&mut snapshots, &message(&bumper, second, 1)).expect("kept");
            }
        }
        Box::new(snapshots).finish().expect("written");
        let file = McapFile::open(&report.lock().files[0]).expect("a recording");
        let summary = file.summary();
        let notes = summary.metadata.iter().filter(|set| set.name == "note");
        let notes = notes.map(|set| file.metadata(set).expect("read")["text"].clone());
        assert_eq!(notes.collect::<Vec<_>>(), ["at 25", "at 31"]);
    }

    fn has_before_and_after(path: &Path, ring: Option<PathBuf>) {
        let (mut snapshots, report) = made_in(path, "/bumper.data == 1", ring);
        let (scan, bumper) = (channel("/scan"), channel("/bumper"));
        for second in 0..60 {
            write(&mut snapshots, &message(&scan, second, 0)).expect("kept");
            if second == 30 {
                write(&mut snapshots, &message(&bumper, second, 1)).expect("kept");
            }
            tick(&mut snapshots, second).expect("written");
        }
        Box::new(snapshots).finish().expect("written");
        let report = report.lock().clone();
        assert_eq!((report.triggered, report.files.len()), (1, 1));
        let found = seconds(&report.files[0], "/scan");
        assert_eq!(found, (20..=35).collect::<Vec<i64>>());
        assert_eq!(seconds(&report.files[0], "/bumper"), [30]);
        assert_eq!(report.written, 17);
    }

    #[test]
    fn what_happens_meanwhile_makes_it_longer_and_what_happens_later_is_another_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut snapshots, report) = made(&folder.path().join("run.mcap"), "/bumper.data == 1");
        let (scan, bumper) = (channel("/scan"), channel("/bumper"));
        for second in 0..60 {
            write(&mut snapshots, &message(&scan, second, 0)).expect("kept");
            let is_pressed = [20, 24, 40].contains(&second);
            let pressed = message(&bumper, second, u8::from(is_pressed));
            write(&mut snapshots, &pressed).expect("kept");
            tick(&mut snapshots, second).expect("written");
        }
        Box::new(snapshots).finish().expect("written");
        let report = report.lock().clone();
        assert_eq!((report.triggered, report.files.len()), (3, 2));
        assert_eq!(
            seconds(&report.files[0], "/scan"),
            (10..=29).collect::<Vec<i64>>()
        );
        assert_eq!(
            seconds(&report.files[1], "/scan"),
            (30..=45).collect::<Vec<i64>>()
        );
    }

    #[test]
    fn what_was_latched_long_ago_is_in_every_snapshot() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut snapshots, report) = made(&folder.path().join("run.mcap"), "/bumper.data == 1");
        let (scan, bumper) = (channel("/scan"), channel("/bumper"));
        let fixed = channel("/tf_static");
        for part in 0..3 {
            write(&mut snapshots, &message(&fixed, 1, part)).expect("kept");
        }
        for second in 2..100 {
            write(&mut snapshots, &message(&scan, second, 0)).expect("kept");
            tick(&mut snapshots, second).expect("kept");
        }
        write(&mut snapshots, &message(&bumper, 100, 1)).expect("kept");
        Box::new(snapshots).finish().expect("written");
        let files = report.lock().files.clone();
        assert_eq!(
            seconds(&files[0], "/tf_static").len(),
            3,
            "of each publisher"
        );
        assert!(
            seconds(&files[0], "/tf_static")[0] >= 89,
            "logged where the snapshot begins"
        );
    }

    #[test]
    fn bytes_are_bounded_and_what_they_cost_is_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = SnapshotOptions {
            bytes: 1 << 20,
            ..SnapshotOptions::default()
        };
        let path = folder.path().join("run.mcap");
        let (mut snapshots, report) = Snapshots::new(
            &path,
            0.into(),
            options,
            McapWriterOptions::default(),
            Tags::new(),
        )
        .expect("snapshots");
        let image = channel("/image");
        for number in 0..1_000 {
            let mut large = message(&image, 0, 0);
            large.log_time = (number * 1_000_000).into();
            large.payload = vec![0; 10_000].into();
            write(&mut snapshots, &large).expect("kept");
        }
        tick(&mut snapshots, 1).expect("kept");
        let report = report.lock().clone();
        assert!(report.kept_bytes <= 1 << 20, "{report:?}");
        assert!(report.crowded_out > 800 && report.kept > 20, "{report:?}");
        assert!(report.files.is_empty(), "nothing happened");
    }

    #[test]
    fn a_file_that_is_there_is_never_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.mcap");
        std::fs::write(PartNames::new(&path, 0.into()).path(0), "mine").expect("written");
        let (mut snapshots, report) = made(&path, "/bumper.data == 1");
        snapshots
            .trigger("a key", (5 * SECOND).into(), (5 * SECOND).into())
            .expect("written");
        Box::new(snapshots).finish().expect("written");
        assert_eq!(
            report.lock().files,
            [PartNames::new(&path, 0.into()).path(1)]
        );
        let before = std::fs::read(PartNames::new(&path, 0.into()).path(0)).expect("read");
        assert_eq!(before, b"mine");
    }

    #[test]
    fn a_clock_that_is_set_back_ends_no_later_and_costs_no_latched_message() {
        let folder = tempfile::tempdir().expect("a folder");
        let ring = folder.path().join("ring");
        for (name, ring) in [("memory.mcap", None), ("disk.mcap", Some(ring))] {
            let (mut snapshots, report) =
                made_in(&folder.path().join(name), "/bumper.data == 1", ring);
            let (scan, bumper) = (channel("/scan"), channel("/bumper"));
            let receipt = Receipt {
                at: 0.into(),
                publisher: None,
            };
            let fixed = message(&channel("/tf_static"), 7_200, 0);
            snapshots.write(&fixed, &receipt).expect("kept");
            for second in 0..60 {
                let at = (second * SECOND).into();
                let receipt = Receipt {
                    at,
                    publisher: None,
                };
                // An hour back in the tenth second, and once more while the file is open.
                let logged =
                    [7_200, 3_600, 0][usize::from(second >= 10) + usize::from(second > 31)];
                let logged = logged + second;
                let scanned = message(&scan, logged, 0);
                snapshots.write(&scanned, &receipt).expect("kept");
                if second == 30 {
                    let pressed = message(&bumper, logged, 1);
                    snapshots.write(&pressed, &receipt).expect("kept");
                }
                let now = (logged * SECOND).into();
                snapshots.tick(now, at).expect("kept");
            }
            Box::new(snapshots).finish().expect("written");
            let report = report.lock().clone();
            let found = seconds(&report.files[0], "/scan");
            assert_eq!(
                found.len(),
                16,
                "ten seconds before, and five after: {found:?}"
            );
            assert_eq!(seconds(&report.files[0], "/tf_static").len(), 1);
        }
    }

    /// What came is kept by when it came: a computer without a battery for its clock starts in 1970, and is set when it
    /// finds a network.
    #[test]
    fn a_snapshot_holds_what_came_before_its_clock_was_set() {
        const DAY: i64 = 86_400;
        let folder = tempfile::tempdir().expect("a folder");
        let ring = folder.path().join("ring");
        for (name, ring) in [("memory.mcap", None), ("disk.mcap", Some(ring))] {
            let is_exact = ring.is_none();
            let (mut snapshots, report) =
                made_in(&folder.path().join(name), "/bumper.data == 1", ring);
            let (scan, bumper) = (channel("/scan"), channel("/bumper"));
            let fixed = message(&channel("/tf_static"), 0, 0);
            write(&mut snapshots, &fixed).expect("kept");
            for second in 0..60_i64 {
                // Ahead by years, then back to a day before, to where it was, and ahead once more while the file is open.
                let logged = match second {
                    23..25 => 20_000 * DAY + second,
                    25..28 => 19_999 * DAY + second,
                    32.. => DAY + second,
                    _ => second,
                };
                let receipt = Receipt {
                    at: (second * SECOND).into(),
                    publisher: None,
                };
                let scanned = message(&scan, logged, second as u8);
                snapshots.write(&scanned, &receipt).expect("kept");
                if second == 30 {
                    let pressed = message(&bumper, logged, 1);
                    snapshots.write(&pressed, &receipt).expect("kept");
                }
                let now = (logged * SECOND).into();
                snapshots.tick(now, receipt.at).expect("kept");
            }
            Box::new(snapshots).finish().expect("written");
            let report = report.lock().clone();
            let file = McapFile::open(&report.files[0]).expect("a recording");
            let batches = file.read(&Query::topics(["/scan"])).expect("read");
            let mut found = Vec::new();
            for batch in batches {
                let batch = batch.expect("a batch");
                found.extend(batch.iter().map(|row| row.payload[4]));
            }
            found.sort_unstable();
            let first = if is_exact { 20 } else { found[0].min(20) };
            assert_eq!(found, (first..=35).collect::<Vec<u8>>(), "{name}");
            assert!(first >= 18, "{name} begins with {first}");
            let fixed = seconds(&report.files[0], "/tf_static");
            assert_eq!(fixed.len(), 1);
            let starts = file.summary().range.start;
            assert_eq!(
                fixed[0],
                starts.nanos() / SECOND,
                "it is there from the start"
            );
        }
    }

    #[test]
    fn snapshots_are_numbered_after_those_of_earlier_runs() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.mcap");
        // The first ones were moved away.
        std::fs::write(PartNames::new(&path, 0.into()).path(3), "mine").expect("written");
        std::fs::create_dir(PartNames::new(&path, 0.into()).path(4)).expect("made");
        let (mut snapshots, report) = made(&path, "/bumper.data == 1");
        snapshots
            .trigger("a key", (5 * SECOND).into(), (5 * SECOND).into())
            .expect("written");
        Box::new(snapshots).finish().expect("written");
        let expected = PartNames::new(&path, 0.into()).path(5);
        assert_eq!(report.lock().files, [expected]);
    }
}
