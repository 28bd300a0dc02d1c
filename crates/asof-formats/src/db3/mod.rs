//! ROS 2 bags in SQLite: one `.db3` file, from Dashing to today.

mod database;
mod directory;
mod kept;
mod load;
mod mapped;
mod pages;
mod salvage;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use asof_core::{
    Channel, MetadataEntry, Problem, ProblemKind, Progress, SourceError, Summary, TimeRange,
    check_by_reading,
};

use crate::buffers::BufferPool;
use crate::counts::counted_channels;
use crate::file::{Format, FormatFile};
use crate::limits::DecompressionLimits;
use crate::options::OpenOptions;
use crate::problems::Problems;
use crate::report::Report;
use crate::sections::{self, Loaded, SectionQuery, Sections};
use database::{Database, Topic};
use directory::{Directory, Loss};
use kept::KeptPages;
use mapped::MappedMessages;
use salvage::Salvaged;

/// A `.db3` file as a [`Source`](asof_core::Source).
///
/// SQLite keeps the messages in the order of their ids, and opening divides them into sections. For a large file
/// with a message count for each topic, only the index of times is read; for others, each message's topic, time
/// and length (not its payload). From then on it is read like any other recording: only the sections that a query
/// needs, ahead of the reader, on connections of their own.
///
/// The messages of a file that is not being written are read from its mapped pages, many times faster than through
/// SQLite, and most payloads are returned without a copy; SQLite reads everything else, and whatever is damaged or
/// unusual.
///
/// If a file was truncated or is damaged, all pages are examined: messages that SQLite no longer finds may still be
/// there, and those that it would fill up with zeros are skipped and reported.
///
/// Files that are being written open as they are at that moment; later messages are not seen.
/// Payloads that were compressed one by one (zstd) are decompressed.
///
/// ```no_run
/// use asof_core::{Query, Source};
/// use asof_formats::{Db3File, Definitions, OpenOptions};
///
/// let definitions = Definitions::with_folders(["/opt/ros/humble/share"])?;
/// let options = OpenOptions { definitions, ..OpenOptions::default() };
/// let bag = Db3File::open_with("run_0.db3", &options)?;
/// println!("{:?}", bag.summary().messages);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Db3File = FormatFile<Db3>;

impl Format for Db3 {
    const NAME: &'static str = "Db3File";

    fn open(path: &Path, name: String, options: &OpenOptions) -> Result<Self, SourceError> {
        let &OpenOptions {
            threads,
            ref definitions,
            map,
            ..
        } = options;
        let database = Database::open(path, &name, map)?;
        let layout = database.layout()?;
        let mut problems = Problems::default();
        let mut topics: Vec<Topic> = layout.topics;
        topics.sort_by_key(|topic| topic.id);
        let undefined = database::define(&mut topics, &layout.embedded, layout.era, definitions);
        // Nothing is lost by that, so it is not a problem of the file: the decoder reports it.
        for (topic, kind) in undefined {
            tracing::info!(
                place = name,
                topic,
                kind,
                "no definition of this type is known"
            );
        }
        problems.extend(database.missing_end());
        problems.extend(database.stale_view());
        let text = layout.metadata.last().map(|(_, text)| text.as_str());
        let declared = text.and_then(|text| database::declared_counts(text, &topics));
        if let Some(fault) = layout.topics_fault {
            let message = format!("not all topics can be read: SQLite: {fault}");
            problems.push(Problem::whole(ProblemKind::BadRecord, message));
        }
        let Messages {
            mapped,
            salvaged,
            directory,
        } = Messages::find(&database, path, (&topics, declared), options, &mut problems)?;
        if salvaged.is_some() {
            let counts = &directory.counts;
            let nameless = salvage::nameless_topics(&topics, counts, &mut problems);
            topics.extend(nameless);
            topics.sort_by_key(|topic| topic.id);
        }
        let ids: Vec<i64> = topics.iter().map(|topic| topic.id).collect();
        let kept = match &mapped {
            Some(pages) if map => KeptPages::of(pages.map()),
            Some(pages) => {
                // If nothing else is mapped, every page counts.
                pages.map().give_up_pages();
                KeptPages::none()
            }
            None => KeptPages::none(),
        };
        let shared = Db3 {
            name,
            threads,
            topics: ids,
            channels: topics
                .into_iter()
                .map(|topic| Arc::new(topic.channel))
                .collect(),
            directory,
            mapped,
            salvaged,
            _kept: kept,
            metadata: layout.metadata,
            report: Report::new(problems),
            pool: Arc::default(),
            limits: options.limits,
            database,
        };
        shared.summarize(layout.library);
        Ok(shared)
    }

    fn summary(&self) -> Arc<Summary> {
        self.report.summary()
    }

    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        let found = self.metadata.iter().find(|(id, _)| *id == entry.offset);
        let (_, text) =
            found.ok_or_else(|| SourceError::without(&self.name, "metadata", &entry.name))?;
        Ok([("serialized_metadata".to_owned(), text.clone())].into())
    }

    fn check(file: &Db3File, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        file.shared.check_pages()?;
        check_by_reading(file, progress)
    }
}

/// The number of mapped sections that may be loaded ahead.
const MAPPED_AHEAD: usize = 16;

/// ROS 2's db3: the state that all readers of a file share.
pub struct Db3 {
    name: String,
    threads: usize,
    database: Database,
    /// The topic ids of the file, sorted.
    topics: Vec<i64>,
    /// Parallel to `topics`.
    channels: Arc<[Arc<Channel>]>,
    directory: Directory,
    /// The messages read without SQLite, if possible.
    mapped: Option<MappedMessages>,
    /// The messages of a damaged file that SQLite does not find.
    salvaged: Option<Salvaged>,
    _kept: KeptPages,
    /// The recorder's metadata about the recording, by row.
    metadata: Vec<(u64, String)>,
    report: Report,
    pool: Arc<BufferPool>,
    limits: DecompressionLimits,
}

impl Sections for Db3 {
    fn name(&self) -> &str {
        &self.name
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn sections_ahead(&self) -> usize {
        // Mapped sections take almost no memory. The more there are, the less a thread that waits for a core delays the
        // others.
        if self.mapped.is_some() {
            MAPPED_AHEAD
        } else {
            sections::usually_ahead(self.threads)
        }
    }

    fn range_of(&self, section: usize) -> TimeRange {
        self.directory.sections[section].range
    }

    fn expected_bytes(&self, section: usize) -> u64 {
        self.directory.sections[section].bytes
    }

    fn section_count(&self) -> usize {
        self.directory.sections.len()
    }

    fn may_hold(&self, section: usize, wanted: &SectionQuery) -> bool {
        let section = &self.directory.sections[section];
        wanted.range.overlaps(section.range)
            && section.topics.get().is_none_or(|topics| {
                topics.iter().any(|&(topic, _)| {
                    self.channel_of(topic)
                        .is_some_and(|channel| wanted.wants(channel, &self.channels))
                })
            })
    }

    fn load(&self, section: usize, wanted: &SectionQuery) -> Result<Loaded, SourceError> {
        self.load_section(section, wanted)
    }

    fn buffers(&self) -> Option<&Arc<BufferPool>> {
        Some(&self.pool)
    }

    fn channels(&self) -> Arc<[Arc<Channel>]> {
        Arc::clone(&self.channels)
    }
}

/// The messages of a file, and the way in which they are read.
struct Messages {
    mapped: Option<MappedMessages>,
    salvaged: Option<Salvaged>,
    directory: Directory,
}

impl Messages {
    /// Uses the fastest way that the state of the file allows.
    fn find(
        database: &Database,
        path: &Path,
        (topics, declared): (&[Topic], Option<BTreeMap<i64, u64>>),
        options: &OpenOptions,
        problems: &mut Problems,
    ) -> Result<Self, SourceError> {
        // SQLite reads zeros where the end of a file is missing.
        if database.missing_end().is_some()
            && let Some(found) = Self::salvage(database, path, topics, problems)?
        {
            return Ok(found);
        }
        let mut mapped = MappedMessages::open(database, path, options.map || options.map_pages)
            .inspect_err(|reason| {
                tracing::debug!(place = database.name(), reason, "left to SQLite");
            })
            .ok();
        let scanned = Directory::of(database, &mut mapped, declared, options.threads, problems)?;
        let directory = scanned.directory;
        let mut counts = directory.counts.keys();
        let is_nameless = |id: &i64| topics.binary_search_by_key(id, |topic| topic.id).is_err();
        let is_damaged = !scanned.losses.is_empty() || counts.any(is_nameless);
        problems.extend(scanned.losses.into_iter().map(Loss::problem));
        if is_damaged
            && database.is_all_in_one_file()
            && let Some(found) = Self::salvage(database, path, topics, problems)?
        {
            return Ok(found);
        }
        Ok(Messages {
            mapped,
            salvaged: None,
            directory,
        })
    }

    fn salvage(
        database: &Database,
        path: &Path,
        topics: &[Topic],
        problems: &mut Problems,
    ) -> Result<Option<Self>, SourceError> {
        let found = Salvaged::find(database, path, topics, problems)?;
        Ok(found.map(|(salvaged, directory)| Messages {
            mapped: None,
            salvaged: Some(salvaged),
            directory,
        }))
    }
}

impl Db3 {
    fn summarize(&self, library: String) {
        let mut summary = Summary::empty("db3");
        summary.profile = "ros2".into();
        summary.library = library;
        summary.size = self.database.size();
        for section in &self.directory.sections {
            summary.range = summary.range.cover(section.range);
        }
        let counts = &self.directory.counts;
        summary.channels = counted_channels(&self.topics, &self.channels, counts);
        summary.messages = summary.channels.iter().map(|entry| entry.messages).sum();
        summary.metadata = self
            .metadata
            .iter()
            .map(|&(offset, _)| MetadataEntry {
                name: "rosbag2".into(),
                offset,
            })
            .collect();
        self.report.set_summary(summary);
        let unknown: u64 = counts
            .iter()
            .filter(|(id, _)| self.topics.binary_search(id).is_err())
            .map(|(_, count)| count)
            .sum();
        if unknown > 0 {
            let message = format!("{unknown} messages are on undefined topics and were skipped");
            self.report(Problem::whole(ProblemKind::UnknownReference, message));
        }
    }

    fn channel_of(&self, topic: i64) -> Option<u32> {
        // Recorders number topics from one.
        let usual = topic.wrapping_sub(*self.topics.first()?) as usize;
        if self.topics.get(usual) == Some(&topic) {
            return Some(usual as u32);
        }
        let place = self.topics.binary_search(&topic);
        place.ok().map(|place| place as u32)
    }

    fn report(&self, problem: Problem) {
        self.report.add(&self.name, problem);
    }
}

#[cfg(test)]
mod tests {
    use asof_core::{Batch, Query, Source as _, Stamp, Topics};

    use super::*;

    fn payloads(shared: &Arc<Db3>, query: &Query) -> Vec<(Stamp, Vec<u8>)> {
        sections::read(shared, query)
            .flat_map(|batch| {
                let batch = batch.expect("reads");
                let rows = batch.iter().map(|m| (m.log_time, m.payload.to_vec()));
                rows.collect::<Vec<_>>()
            })
            .collect()
    }

    /// Ids in no order of pages: the second half was written first, then every third row anew.
    fn scattered(path: &Path) {
        let database = rusqlite::Connection::open(path).expect("opens");
        database
            .execute_batch(
                "PRAGMA page_size=1024; PRAGMA synchronous=OFF; BEGIN;
                 CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT);
                 INSERT INTO topics VALUES (1, '/a', 'std_msgs/msg/String', 'cdr'), (2, '/b', 'std_msgs/msg/String', 'cdr');
                 CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB);
                 CREATE INDEX timestamp_idx ON messages (timestamp ASC);",
            )
            .expect("creates");
        let mut insert = database
            .prepare("INSERT OR REPLACE INTO messages VALUES (?1, 1 + ?1 % 2, ?1 * 10 % 7919, randomblob(?2))")
            .expect("prepares");
        for id in (2000..4000i64).chain(0..2000).chain((0..4000).step_by(3)) {
            let len = [40, 400, 900, 6000][(id % 4) as usize];
            insert.execute([id, len]).expect("inserts");
        }
        drop(insert);
        database.execute_batch("COMMIT").expect("commits");
    }

    /// The same file, opened by its index of times.
    fn by_index(path: &Path) -> Result<Arc<Db3>, mapped::Unusable> {
        let mut shared = Db3::open(path, "run".into(), &OpenOptions::default()).expect("opens");
        let pages = shared.mapped.as_ref().expect("mapped");
        let counts = shared.directory.counts.clone();
        shared.directory = Directory::by_index(&shared.database, pages, counts, 2)?;
        Ok(Arc::new(shared))
    }

    fn execute(path: &Path, sql: &str) {
        let database = rusqlite::Connection::open(path).expect("opens");
        database.execute_batch(sql).expect("executes");
    }

    #[test]
    fn a_scan_the_index_of_times_and_sqlite_give_the_same_messages() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.db3");
        scattered(&path);
        let open = || Db3::open(&path, "run".into(), &OpenOptions::default()).expect("opens");
        let scanned = Arc::new(open());
        assert!(scanned.mapped.is_some());
        let indexed = by_index(&path).expect("has an index");
        let mut by_sqlite = open();
        by_sqlite.mapped = None;
        let by_sqlite = Arc::new(by_sqlite);
        let everything = Query::all();
        let some = Query {
            topics: Topics::named(["/b"]),
            range: TimeRange::new(500.into(), 6000.into()),
        };
        for query in [everything, some] {
            let wanted = payloads(&by_sqlite, &query);
            assert!(wanted.len() > 1000);
            assert!(payloads(&scanned, &query) == wanted);
            assert!(payloads(&indexed, &query) == wanted);
        }
        assert!(indexed.report.summary().problems.is_empty());
        let last = |shared: &Db3| {
            let found = sections::latest_at(shared, &Topics::All, 4000.into()).expect("reads");
            let rows = found.iter().map(|m| (m.log_time, m.payload.to_vec()));
            rows.collect::<Vec<_>>()
        };
        assert!(last(&indexed) == last(&by_sqlite));
    }

    #[test]
    fn pages_are_read_unless_nothing_at_all_is_to_be_mapped() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.db3");
        scattered(&path);
        let is_mapped = |map, map_pages| {
            let options = OpenOptions {
                map,
                map_pages,
                ..OpenOptions::default()
            };
            let opened = Db3::open(&path, "run".into(), &options);
            opened.expect("opens").mapped.is_some()
        };
        assert!(is_mapped(true, true));
        assert!(is_mapped(false, true));
        assert!(!is_mapped(false, false));
    }

    #[test]
    fn sections_by_the_index_are_bounded_however_large_messages_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.db3");
        scattered(&path);
        execute(
            &path,
            "WITH RECURSIVE n(i) AS (SELECT 5000 UNION ALL SELECT i + 1 FROM n WHERE i < 5011)
             INSERT INTO messages SELECT i, 1, i, randomblob(3000000) FROM n",
        );
        let shared = by_index(&path).expect("has an index");
        let sections = &shared.directory.sections;
        let large: Vec<u64> = sections
            .iter()
            .filter(|section| section.base >= 5000)
            .map(|section| section.rows)
            .collect();
        // The first of them may share a section with the small ones before it.
        assert!(large == [1; 12] || large == [1; 11], "{large:?}");
        assert!(sections.iter().all(|section| section.bytes < 8 << 20));
    }

    /// A file that is large enough to be opened by its index, and declares these message counts of its two topics.
    fn large(path: &Path, said: [u64; 2]) -> Db3File {
        scattered(path);
        let [a, b] = said;
        execute(
            path,
            &format!(
                "INSERT INTO messages VALUES (5000, 1, 9000, randomblob(10000000)), (5001, 1, 9001, randomblob(9000000));
                 CREATE TABLE metadata(id INTEGER PRIMARY KEY, metadata_version INTEGER, metadata TEXT);
                 INSERT INTO metadata VALUES (1, 8, 'topics_with_message_count:
  - {{topic_metadata: {{name: /a}}, message_count: {a}}}
  - {{topic_metadata: {{name: /b}}, message_count: {b}}}');"
            ),
        );
        Db3File::open(path).expect("opens")
    }

    fn is_unseen(file: &Db3File) -> bool {
        let mut sections = file.shared.directory.sections.iter();
        sections.all(|section| section.topics.get().is_none())
    }

    #[test]
    fn opening_a_large_file_looks_at_no_message_and_reading_it_learns_its_topics() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = large(&folder.path().join("run.db3"), [2002, 2000]);
        assert!(is_unseen(&file));
        let summary = file.summary();
        assert_eq!(summary.messages, Some(4002));
        assert_eq!(summary.channels[1].messages, Some(2000));
        assert_eq!(summary.range.end, 9001.into());
        assert_eq!(file.check(&mut |_, _| Ok(())).expect("reads"), []);
        assert!(!is_unseen(&file));
        let only_a = Query {
            topics: Topics::named(["/a"]),
            ..Query::all()
        };
        assert_eq!(payloads(&file.shared, &only_a).len(), 2002);
    }

    #[test]
    fn a_recorder_that_miscounted_is_not_believed() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = large(&folder.path().join("run.db3"), [2002, 1000]);
        assert!(!is_unseen(&file));
        assert_eq!(file.summary().messages, Some(4002));
    }

    #[test]
    fn a_recorder_that_mixed_up_its_topics_is_found_out_by_a_check() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = large(&folder.path().join("run.db3"), [2003, 1999]);
        let found = file.check(&mut |_, _| Ok(())).expect("reads");
        let topics: Vec<_> = found
            .iter()
            .map(|problem| problem.topic.as_deref())
            .collect();
        assert_eq!(topics, [Some("/a"), Some("/b")]);
    }

    /// Puts an index of other ids and times in the place of the true one.
    fn swap_index(path: &Path, ids_and_times: &str) {
        execute(
            path,
            &format!(
                "CREATE TABLE other(id INTEGER PRIMARY KEY, timestamp INTEGER);
                 INSERT INTO other {ids_and_times};
                 CREATE INDEX other_idx ON other(timestamp);
                 PRAGMA writable_schema=ON;
                 UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE name = 'other_idx') WHERE name = 'timestamp_idx';"
            ),
        );
    }

    #[test]
    fn an_index_that_lies_is_reported_and_no_message_is_lost() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.db3");
        scattered(&path);
        swap_index(&path, "SELECT id, id FROM messages");
        let shared = by_index(&path).expect("has an index");
        assert_eq!(payloads(&shared, &Query::all()).len(), 4000);
        let problems = shared.report.summary().problems.clone();
        assert!(
            problems
                .iter()
                .any(|problem| problem.kind == ProblemKind::BadIndex),
            "{problems:?}"
        );
    }

    #[test]
    fn an_index_that_misses_messages_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.db3");
        scattered(&path);
        swap_index(&path, "SELECT id, timestamp FROM messages WHERE id <> 77");
        assert!(by_index(&path).is_err());
    }

    #[test]
    fn what_the_recorder_says_is_believed_of_topics_that_it_names_once() {
        let topic = |id, name: &str| Topic {
            id,
            channel: Channel {
                topic: name.into(),
                ..Channel::default()
            },
        };
        let said = "topics_with_message_count:\n  - topic_metadata:\n      name: /a\n    message_count: 5\n";
        let counts = |text: &str, topics: &[Topic]| database::declared_counts(text, topics);
        assert_eq!(
            counts(said, &[topic(3, "/a"), topic(4, "/b")]),
            Some([(3, 5)].into())
        );
        assert_eq!(counts(said, &[topic(3, "/a"), topic(4, "/a")]), None);
        assert_eq!(counts(said, &[topic(3, "/c")]), None);
        assert_eq!(counts("", &[]), None);
        assert_eq!(counts("topics_with_message_count: 7", &[]), None);
    }

    #[test]
    fn most_payloads_are_handed_out_without_a_copy() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.db3");
        scattered(&path);
        let shared =
            Arc::new(Db3::open(&path, "run".into(), &OpenOptions::default()).expect("opens"));
        let map = shared
            .mapped
            .as_ref()
            .expect("mapped")
            .map()
            .bytes()
            .as_ptr_range();
        let batches = sections::read(&shared, &Query::all()).map(|batch| batch.expect("reads"));
        let (mut in_place, mut copied) = (0, 0);
        for message in batches.collect::<Vec<_>>().iter().flat_map(Batch::iter) {
            if map.contains(&message.payload.as_ptr()) {
                in_place += 1;
            } else {
                copied += 1;
            }
        }
        // A quarter of the messages do not fit on a page, and some are too far from all others.
        assert!(in_place > 2000 && copied >= 1000, "{in_place}, {copied}");
    }
}
