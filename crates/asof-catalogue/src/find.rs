//! Searches, answered from the catalogue alone: no recording is opened.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{Array as _, BooleanArray, RecordBatch};
use arrow_schema::ArrowError;
use asof_core::{Stamp, TimeRange};
use parquet::file::metadata::RowGroupMetaData;

use crate::catalogue::Catalogue;
use crate::error::CatalogueError;
use crate::glob::NamePattern;
use crate::head::Part;
use crate::predicate::Predicate;
use crate::reading::{self, Reading, RowChoice, bounds, may_hold_text};
use crate::tables::{RecordingRow, column, ints, range_at, range_of, text, texts};

/// A search for recordings. All criteria must match.
#[derive(Debug, Clone)]
pub struct Search {
    /// With messages on one of these topics; empty for any.
    pub topics: Vec<NamePattern>,
    /// With messages in this range: on one of the topics, if topics are given.
    pub range: TimeRange,
    /// Of one of these robots; empty for any.
    pub robots: Vec<NamePattern>,
    /// From one of these sites; empty for any.
    pub sites: Vec<NamePattern>,
    /// With these tags; also `robot`, `site` and `date`.
    pub tags: Vec<(String, NamePattern)>,
    /// Matching this condition.
    pub predicate: Option<Predicate>,
    /// Includes vanished recordings.
    pub with_vanished: bool,
}

impl Default for Search {
    fn default() -> Self {
        Search {
            topics: Vec::new(),
            range: TimeRange::new(Stamp::MIN, Stamp::MAX),
            robots: Vec::new(),
            sites: Vec::new(),
            tags: Vec::new(),
            predicate: None,
            with_vanished: false,
        }
    }
}

/// The result of a search.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The matches, sorted by start, then by path.
    pub recordings: Vec<FoundRecording>,
    /// The cost of the search.
    pub stats: SearchStats,
}

/// A matching recording.
#[derive(Debug, Clone)]
pub struct FoundRecording {
    /// Its row in the catalogue.
    pub row: RecordingRow,
    /// The matching topics and their time ranges; empty if the search names none.
    pub topics: BTreeMap<String, TimeRange>,
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
const FILTER_COLUMNS: [&str; 5] = ["recording", "start_ns", "end_ns", "robot", "vanished"];
/// The columns of topics that a search needs.
const TOPIC_COLUMNS: [&str; 5] = ["recording", "topic", "messages", "start_ns", "end_ns"];

/// Parts that are read at once over a network.
const CONCURRENT_REQUESTS: usize = 16;

/// Topics of recordings, by recording.
type TopicRanges = HashMap<String, BTreeMap<String, TimeRange>>;

impl Catalogue {
    /// The matching recordings.
    ///
    /// # Errors
    /// When there is no catalogue, or it cannot be read.
    pub fn find(&self, search: &Search) -> Result<Found, CatalogueError> {
        let head = self.existing_head()?;
        let mut found = Found::default();
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
        let topics = if search.topics.is_empty() {
            None
        } else {
            let topics = self.topics_in(part, search, &mut found.stats)?;
            if topics.is_empty() {
                return Ok(());
            }
            Some(Arc::new(topics))
        };
        let (wanted, asked) = (topics.clone(), search.clone());
        let choose = move |batch: RecordBatch| chosen(&batch, &asked, wanted.as_deref());
        let reading = Reading {
            columns: None,
            may_hold: &|group| may_hold_recording(group, search),
            filter: Some(RowChoice {
                columns: &FILTER_COLUMNS,
                choose: Box::new(choose),
            }),
        };
        let (batches, groups) = reading::read(&self.store, &part.recordings, reading)?;
        found.stats.groups += groups.all;
        found.stats.groups_read += groups.read;
        for batch in &batches {
            let rows = RecordingRow::rows(batch);
            for row in rows.map_err(|error| reading::bad(&self.store, &part.recordings, &error))? {
                if !search.means(&row) {
                    continue;
                }
                let topics = topics
                    .as_ref()
                    .and_then(|topics| topics.get(&row.recording));
                found.recordings.push(FoundRecording {
                    topics: topics.cloned().unwrap_or_default(),
                    row,
                });
            }
        }
        Ok(())
    }

    fn topics_in(
        &self,
        part: &Part,
        search: &Search,
        stats: &mut SearchStats,
    ) -> Result<TopicRanges, CatalogueError> {
        let asked = search.clone();
        let choose = move |batch: RecordBatch| meant_topics(&batch, &asked);
        let reading = Reading {
            columns: Some(&TOPIC_COLUMNS),
            may_hold: &|group| may_hold_topic(group, search),
            filter: Some(RowChoice {
                columns: &TOPIC_COLUMNS[1..],
                choose: Box::new(choose),
            }),
        };
        let (batches, groups) = reading::read(&self.store, &part.topics, reading)?;
        stats.groups += groups.all;
        stats.groups_read += groups.read;
        let mut found = TopicRanges::new();
        for batch in &batches {
            note_topics(batch, &mut found)
                .map_err(|error| reading::bad(&self.store, &part.topics, &error))?;
        }
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
            && (self.is_all_of_time() || row.range.overlaps(self.range))
            && self
                .predicate
                .as_ref()
                .is_none_or(|predicate| predicate.is_true(row))
    }

    fn is_all_of_time(&self) -> bool {
        self.range == TimeRange::new(Stamp::MIN, Stamp::MAX)
    }
}

/// The rows that may match, by the cheapest columns.
fn chosen(
    batch: &RecordBatch,
    search: &Search,
    topics: Option<&TopicRanges>,
) -> Result<BooleanArray, ArrowError> {
    let vanished = column(batch, "vanished")?;
    let (recordings, robots) = (texts(batch, "recording")?, texts(batch, "robot")?);
    let is_timely = ranges_of(batch, search)?;
    let is_robot = |row: usize| {
        let robot = robots.is_valid(row).then(|| robots.value(row));
        let is_meant = |pattern: &NamePattern| robot.is_some_and(|robot| pattern.is_match(robot));
        search.robots.is_empty() || search.robots.iter().any(is_meant)
    };
    let has_topic =
        |row: usize| topics.is_none_or(|topics| topics.contains_key(recordings.value(row)));
    let is_chosen = |row: usize| {
        (search.with_vanished || vanished.is_null(row))
            && is_timely(row)
            && is_robot(row)
            && has_topic(row)
    };
    Ok((0..batch.num_rows())
        .map(|row| Some(is_chosen(row)))
        .collect())
}

/// The matching rows of topics.
fn meant_topics(batch: &RecordBatch, search: &Search) -> Result<BooleanArray, ArrowError> {
    let (topics, messages) = (texts(batch, "topic")?, ints(batch, "messages")?);
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
        is_timely(row) && !is_silent && is_named(topics.value(row))
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

fn note_topics(batch: &RecordBatch, found: &mut TopicRanges) -> Result<(), ArrowError> {
    for row in 0..batch.num_rows() {
        let recording = text(batch, "recording", row)?.unwrap_or_default();
        let topic = text(batch, "topic", row)?.unwrap_or_default();
        let topics = match found.get_mut(recording) {
            Some(topics) => topics,
            None => found.entry(recording.to_owned()).or_default(),
        };
        let range = topics.entry(topic.to_owned()).or_insert(TimeRange::EMPTY);
        *range = range.cover(range_at(batch, row)?);
    }
    Ok(())
}

/// Whether a row group of topics may hold a match.
fn may_hold_topic(group: &RowGroupMetaData, search: &Search) -> bool {
    may_hold_name(group, "topic", &search.topics) && may_hold_time(group, search)
}

/// Whether a row group of recordings may hold a match.
fn may_hold_recording(group: &RowGroupMetaData, search: &Search) -> bool {
    may_hold_name(group, "robot", &search.robots) && may_hold_time(group, search)
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
