//! Searches, answered from the catalogue alone: no recording is opened.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{Array as _, BooleanArray, RecordBatch};
use arrow_schema::ArrowError;
use asof_core::{Stamp, TimeRange};
use parquet::file::metadata::RowGroupMetaData;

use crate::catalogue::Catalogue;
use crate::error::CatalogueError;
use crate::glob::NamePattern;
use crate::head::{Head, Part};
use crate::predicate::Predicate;
use crate::reading::{self, Reading, RowChoice, bounds, may_hold_problems, may_hold_text};
use crate::tables::{
    RecordingRow, Table, column, int, ints, lists, range_at, range_of, text, texts,
};

/// A search for recordings. All criteria must match.
#[derive(Debug, Clone)]
pub struct Search {
    /// At one of these paths from the root; empty for any.
    pub recordings: BTreeSet<String>,
    /// With messages on one of these topics; empty for any.
    pub topics: Vec<NamePattern>,
    /// With messages in this range: on one of the topics, if topics are given.
    pub range: TimeRange,
    /// Includes recordings with problems whose known range is another: their indexes may not list all messages.
    pub with_damaged: bool,
    /// Of one of these robots; empty for any.
    pub robots: Vec<NamePattern>,
    /// From one of these sites; empty for any.
    pub sites: Vec<NamePattern>,
    /// With these tags; also `robot`, `site` and `date`.
    pub tags: Vec<(String, NamePattern)>,
    /// Matching this condition.
    pub predicate: Option<Predicate>,
    /// Passing this filter, which is asked before anything else is read of a recording.
    pub filter: Option<RecordingFilter>,
    /// Includes vanished recordings.
    pub with_vanished: bool,
}

impl Default for Search {
    fn default() -> Self {
        Search {
            recordings: BTreeSet::new(),
            topics: Vec::new(),
            range: TimeRange::new(Stamp::MIN, Stamp::MAX),
            with_damaged: false,
            robots: Vec::new(),
            sites: Vec::new(),
            tags: Vec::new(),
            predicate: None,
            filter: None,
            with_vanished: false,
        }
    }
}

/// A filter on recordings by some of their columns in the catalogue, which are read in batches. Those that do not pass take no memory.
#[derive(Clone)]
pub struct RecordingFilter {
    columns: Vec<String>,
    choose: Arc<dyn Fn(&RecordBatch) -> BooleanArray + Send + Sync>,
}

impl RecordingFilter {
    /// A filter that asks of each batch of these columns which of its rows pass.
    pub fn new(
        columns: Vec<String>,
        choose: impl Fn(&RecordBatch) -> BooleanArray + Send + Sync + 'static,
    ) -> Self {
        RecordingFilter {
            columns,
            choose: Arc::new(choose),
        }
    }
}

impl std::fmt::Debug for RecordingFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RecordingFilter")
            .field(&self.columns)
            .finish()
    }
}

/// The result of a search.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The matches, sorted by start, then by path.
    pub recordings: Vec<FoundRecording>,
    /// The cost of the search.
    pub stats: SearchStats,
    /// The catalogue as it was searched.
    pub head: Option<Arc<Head>>,
}

/// A matching recording.
#[derive(Debug, Clone)]
pub struct FoundRecording {
    /// Its row in the catalogue.
    pub row: RecordingRow,
    /// The matching topics; empty if the search names none.
    pub topics: BTreeMap<String, FoundTopic>,
}

/// A matching topic of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundTopic {
    /// All its messages are within this range.
    pub range: TimeRange,
    /// The number of its messages; `None` if only reading could count them.
    pub messages: Option<u64>,
    /// About how many bytes its payloads have; `None` where that is not known.
    pub bytes_estimate: Option<u64>,
}

/// The cost of a search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SearchStats {
    /// Row groups of the searched tables.
    pub groups: u64,
    /// Of these, the ones that were read.
    pub groups_read: u64,
}

/// The columns that filter recordings before the others are read.
const FILTER_COLUMNS: [&str; 6] = [
    "recording",
    "start_ns",
    "end_ns",
    "robot",
    "vanished",
    "problems",
];
/// The columns of topics that a search needs.
const TOPIC_COLUMNS: [&str; 6] = [
    "recording",
    "topic",
    "messages",
    "bytes_estimate",
    "start_ns",
    "end_ns",
];

/// Parts that are read at once over a network.
const CONCURRENT_REQUESTS: usize = 16;

/// Candidates are looked for one by one in the bounds of a row group up to this number, and by their common range beyond it.
const MOST_COMPARED: usize = 1_000;

/// Topics of recordings, by recording.
type FoundTopics = HashMap<String, BTreeMap<String, FoundTopic>>;

impl Catalogue {
    /// The matching recordings.
    ///
    /// # Errors
    /// When there is no catalogue, or it cannot be read.
    pub fn find(&self, search: &Search) -> Result<Found, CatalogueError> {
        let head = Arc::new(self.existing_head()?);
        let mut found = Found {
            head: Some(Arc::clone(&head)),
            ..Found::default()
        };
        for part in self.in_all_parts(&head.parts, search)? {
            found.recordings.extend(part.recordings);
            found.stats.groups += part.stats.groups;
            found.stats.groups_read += part.stats.groups_read;
        }
        found.recordings.sort_by(|a, b| {
            let by_start = a.row.range.start.cmp(&b.row.range.start);
            by_start.then_with(|| a.row.recording.cmp(&b.row.recording))
        });
        Ok(found)
    }

    /// The matches of each part, several parts at once: with a bucket, latency dominates.
    fn in_all_parts(&self, parts: &[Part], search: &Search) -> Result<Vec<Found>, CatalogueError> {
        let at_once = if self.store.is_remote() {
            CONCURRENT_REQUESTS
        } else {
            std::thread::available_parallelism().map_or(1, usize::from)
        };
        let next = AtomicUsize::new(0);
        let work = || {
            let mut all = Vec::new();
            while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut found = Found::default();
                self.find_in(part, search, &mut found)?;
                all.push(found);
            }
            Ok(all)
        };
        if parts.len() <= 1 {
            return work();
        }
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..at_once.min(parts.len()))
                .map(|_| scope.spawn(work))
                .collect();
            let mut all = Vec::new();
            for thread in threads {
                match thread.join() {
                    Ok(found) => all.extend(found?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok(all)
        })
    }

    fn find_in(
        &self,
        part: &Part,
        search: &Search,
        found: &mut Found,
    ) -> Result<(), CatalogueError> {
        if search.topics.is_empty() || search.is_narrow() {
            let rows = self.rows_in(part, search, None, &mut found.stats)?;
            if search.topics.is_empty() || rows.is_empty() {
                let plain = |row| FoundRecording {
                    row,
                    topics: BTreeMap::new(),
                };
                found.recordings.extend(rows.into_iter().map(plain));
                return Ok(());
            }
            // A few recordings: only the topics of their times are read.
            let known = rows.iter().map(|row| {
                let is_damaged = search.with_damaged && !row.problems.is_empty();
                (row.recording.clone(), (row.range, is_damaged))
            });
            let known = Arc::new(known.collect());
            let mut topics = self.topics_in(part, search, Some(&known), &mut found.stats)?;
            for row in rows {
                if let Some(topics) = topics.remove(&row.recording) {
                    found.recordings.push(FoundRecording { row, topics });
                }
            }
            return Ok(());
        }
        let topics = Arc::new(self.topics_in(part, search, None, &mut found.stats)?);
        if topics.is_empty() {
            return Ok(());
        }
        for row in self.rows_in(part, search, Some(&topics), &mut found.stats)? {
            let topics = topics.get(&row.recording).cloned().unwrap_or_default();
            found.recordings.push(FoundRecording { row, topics });
        }
        Ok(())
    }

    /// The matching rows, with one of these topics if they are known.
    fn rows_in(
        &self,
        part: &Part,
        search: &Search,
        topics: Option<&Arc<FoundTopics>>,
        stats: &mut SearchStats,
    ) -> Result<Vec<RecordingRow>, CatalogueError> {
        let (wanted, asked) = (topics.cloned(), search.clone());
        let choose = move |batch: RecordBatch| chosen(&batch, &asked, wanted.as_deref());
        let columns = FILTER_COLUMNS.len() - usize::from(!search.with_damaged);
        let mut filters = vec![RowChoice {
            columns: FILTER_COLUMNS[..columns].to_vec(),
            choose: Box::new(choose),
        }];
        if let Some(RecordingFilter { columns, choose }) = &search.filter {
            let choose = Arc::clone(choose);
            filters.push(RowChoice {
                columns: columns.iter().map(String::as_str).collect(),
                choose: Box::new(move |batch| Ok(choose(&batch))),
            });
        }
        let reading = Reading {
            table: Table::Recordings,
            columns: None,
            may_hold: &|group| may_hold_recording(group, search),
            filters,
        };
        let mut all = Vec::new();
        let groups = reading::each(&self.store, &part.recordings, reading, &mut |batch| {
            let rows = RecordingRow::rows(&batch)?.into_iter();
            all.extend(rows.filter(|row| search.means(row)));
            Ok(())
        })?;
        stats.groups += groups.all;
        stats.groups_read += groups.read;
        Ok(all)
    }

    /// The matching topics, of these recordings if they are known.
    fn topics_in(
        &self,
        part: &Part,
        search: &Search,
        known: Option<&Arc<KnownRanges>>,
        stats: &mut SearchStats,
    ) -> Result<FoundTopics, CatalogueError> {
        let (asked, wanted) = (search.clone(), known.cloned());
        let choose = move |batch: RecordBatch| meant_topics(&batch, &asked, wanted.as_deref());
        let is_near = near(known.map(|known| known.values().map(|(range, _)| *range)));
        let is_timely = |group: &RowGroupMetaData| match known {
            None => may_hold_time(group, search),
            Some(_) => is_near(group),
        };
        let reading = Reading {
            table: Table::Topics,
            columns: Some(&TOPIC_COLUMNS),
            may_hold: &|group| may_hold_name(group, "topic", &search.topics) && is_timely(group),
            filters: vec![RowChoice {
                columns: TOPIC_COLUMNS[usize::from(known.is_none())..].to_vec(),
                choose: Box::new(choose),
            }],
        };
        let mut found = FoundTopics::new();
        let groups = reading::each(&self.store, &part.topics, reading, &mut |batch| {
            note_topics(&batch, &mut found)
        })?;
        stats.groups += groups.all;
        stats.groups_read += groups.read;
        Ok(found)
    }
}

impl Search {
    /// Whether a recording matches, apart from its topics.
    fn means(&self, row: &RecordingRow) -> bool {
        let is_any = |patterns: &[NamePattern], value: Option<&String>| {
            patterns.is_empty()
                || value.is_some_and(|value| patterns.iter().any(|pattern| pattern.is_match(value)))
        };
        let has_tag = |(key, wanted): &(String, NamePattern)| {
            let value = match key.as_str() {
                "robot" => row.robot.as_ref(),
                "site" => row.site.as_ref(),
                "date" => row.date.as_ref(),
                key => row.tags.get(key),
            };
            value.is_some_and(|value| wanted.is_match(value))
        };
        (self.with_vanished || row.vanished.is_none())
            && is_any(&self.robots, row.robot.as_ref())
            && is_any(&self.sites, row.site.as_ref())
            && self.tags.iter().all(has_tag)
            && (self.is_all_of_time()
                || row.range.overlaps(self.range)
                || self.with_damaged && !row.problems.is_empty())
            && self
                .predicate
                .as_ref()
                .is_none_or(|predicate| predicate.is_true(row))
    }

    /// Whether few recordings match, apart from their topics.
    fn is_narrow(&self) -> bool {
        !self.recordings.is_empty()
            || self.filter.is_some()
            || self.with_damaged && !self.is_all_of_time()
    }

    fn is_all_of_time(&self) -> bool {
        self.range == TimeRange::new(Stamp::MIN, Stamp::MAX)
    }
}

/// The rows that may match, by the cheapest columns.
fn chosen(
    batch: &RecordBatch,
    search: &Search,
    topics: Option<&FoundTopics>,
) -> Result<BooleanArray, ArrowError> {
    let vanished = column(batch, "vanished")?;
    let problems = search.with_damaged.then(|| lists(batch, "problems"));
    let problems = problems.transpose()?;
    let is_damaged = |row: usize| {
        problems.is_some_and(|lists| lists.is_valid(row) && lists.value_length(row) > 0)
    };
    let (recordings, robots) = (texts(batch, "recording")?, texts(batch, "robot")?);
    let is_timely = ranges_of(batch, search)?;
    let is_robot = |row: usize| {
        let robot = robots.is_valid(row).then(|| robots.value(row));
        let is_meant = |pattern: &NamePattern| robot.is_some_and(|robot| pattern.is_match(robot));
        search.robots.is_empty() || search.robots.iter().any(is_meant)
    };
    let is_named = |row: usize| {
        search.recordings.is_empty() || search.recordings.contains(recordings.value(row))
    };
    let has_topic =
        |row: usize| topics.is_none_or(|topics| topics.contains_key(recordings.value(row)));
    let is_chosen = |row: usize| {
        (search.with_vanished || vanished.is_null(row))
            && (is_timely(row) || is_damaged(row))
            && is_robot(row)
            && is_named(row)
            && has_topic(row)
    };
    Ok((0..batch.num_rows())
        .map(|row| Some(is_chosen(row)))
        .collect())
}

/// The matching rows of topics.
fn meant_topics(
    batch: &RecordBatch,
    search: &Search,
    known: Option<&KnownRanges>,
) -> Result<BooleanArray, ArrowError> {
    let (topics, messages) = (texts(batch, "topic")?, ints(batch, "messages")?);
    let recordings = known.map(|_| texts(batch, "recording")).transpose()?;
    let is_timely = ranges_of(batch, search)?;
    // Rows are sorted by topic: the last answer holds for most of the next ones.
    let mut last = ("", false);
    let mut is_named = |topic| {
        if last.0 != topic {
            let mut patterns = search.topics.iter();
            last = (topic, patterns.any(|pattern| pattern.is_match(topic)));
        }
        last.1
    };
    let mut is_meant = |row: usize| {
        // A topic without messages was not recorded.
        let is_silent = messages.is_valid(row) && messages.value(row) == 0;
        if is_silent || !is_named(topics.value(row)) {
            return false;
        }
        match known.zip(recordings) {
            None => is_timely(row),
            Some((known, recordings)) => known
                .get(recordings.value(row))
                .is_some_and(|(_, is_damaged)| *is_damaged || is_timely(row)),
        }
    };
    Ok((0..batch.num_rows())
        .map(|row| Some(is_meant(row)))
        .collect())
}

/// A test whether a row overlaps the time range of the search.
fn ranges_of<'a>(
    batch: &'a RecordBatch,
    search: &'a Search,
) -> Result<impl Fn(usize) -> bool + 'a, ArrowError> {
    let (starts, ends) = (ints(batch, "start_ns")?, ints(batch, "end_ns")?);
    let is_all = search.is_all_of_time();
    Ok(move |row: usize| is_all || range_of(starts, ends, row).overlaps(search.range))
}

fn note_topics(batch: &RecordBatch, found: &mut FoundTopics) -> Result<(), ArrowError> {
    for row in 0..batch.num_rows() {
        let recording = text(batch, "recording", row)?.unwrap_or_default();
        let topic = text(batch, "topic", row)?.unwrap_or_default();
        let topics = match found.get_mut(recording) {
            Some(topics) => topics,
            None => found.entry(recording.to_owned()).or_default(),
        };
        let topic = topics.entry(topic.to_owned()).or_insert(FoundTopic {
            range: TimeRange::EMPTY,
            messages: Some(0),
            bytes_estimate: Some(0),
        });
        topic.range = topic.range.cover(range_at(batch, row)?);
        let count = |name| -> Result<Option<u64>, ArrowError> {
            Ok(int(batch, name, row)?.and_then(|count| u64::try_from(count).ok()))
        };
        let sum =
            |sum: Option<u64>, more| sum.zip(more).map(|(sum, more)| sum.saturating_add(more));
        topic.messages = sum(topic.messages, count("messages")?);
        topic.bytes_estimate = sum(topic.bytes_estimate, count("bytes_estimate")?);
    }
    Ok(())
}

/// The ranges of recordings, and whether they are damaged, by recording.
type KnownRanges = HashMap<String, (TimeRange, bool)>;

/// A test whether a row group of topics may hold one of recordings with these ranges; without any, everything may.
pub(crate) fn near(
    ranges: Option<impl Iterator<Item = TimeRange>>,
) -> impl Fn(&RowGroupMetaData) -> bool {
    let mut known: Option<Vec<TimeRange>> = ranges.map(Iterator::collect);
    // One without a range has topics without one, which no bounds include.
    if known.iter().flatten().any(|range| range.is_empty()) {
        known = None;
    }
    if let Some(ranges) = &mut known
        && ranges.len() > MOST_COMPARED
    {
        let all = ranges.drain(..).reduce(TimeRange::cover);
        ranges.extend(all);
    }
    move |group| {
        let Some(ranges) = &known else { return true };
        let (Some((first, _)), Some((_, last))) =
            (bounds(group, "start_ns"), bounds(group, "end_ns"))
        else {
            return true;
        };
        let group = TimeRange::new(first.into(), last.into());
        ranges.iter().any(|range| range.overlaps(group))
    }
}

/// Whether a row group of recordings may hold a match.
fn may_hold_recording(group: &RowGroupMetaData, search: &Search) -> bool {
    let is_exact =
        |path: &String| may_hold_text(group, "recording", path.as_bytes(), Some(path.as_bytes()));
    (search.recordings.is_empty() || search.recordings.iter().any(is_exact))
        && may_hold_name(group, "robot", &search.robots)
        && (may_hold_time(group, search) || search.with_damaged && may_hold_problems(group))
}

fn may_hold_name(group: &RowGroupMetaData, column: &str, patterns: &[NamePattern]) -> bool {
    let may_hold = |pattern: &NamePattern| {
        let most = pattern.upper_bound();
        may_hold_text(group, column, pattern.prefix().as_bytes(), most.as_deref())
    };
    patterns.is_empty() || patterns.iter().any(may_hold)
}

fn may_hold_time(group: &RowGroupMetaData, search: &Search) -> bool {
    if search.is_all_of_time() {
        return true;
    }
    let starts_late =
        bounds(group, "start_ns").is_some_and(|(first, _)| first > search.range.end.nanos());
    let ends_early =
        bounds(group, "end_ns").is_some_and(|(_, last)| last < search.range.start.nanos());
    !(starts_late || ends_early)
}
