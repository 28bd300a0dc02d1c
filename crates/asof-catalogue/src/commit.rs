//! Changing a catalogue: write new files, then replace the head if it is still the one that was read.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use arrow_array::RecordBatch;
use asof_core::Stamp;
use asof_formats::{Replaced, StoredFile, StoredVersion};

use crate::catalogue::{Catalogue, HEAD};
use crate::error::CatalogueError;
use crate::head::{Head, Part, PartFile};
use crate::known::RecordingVersion;
use crate::parts::{sorted, without_recordings, write, write_summaries};
use crate::pattern::KeyPattern;
use crate::reading::{bad, read_all};
use crate::tables::{
    IndexedRecording, RecordingRow, SchemaRow, SectionRow, SummaryRow, Table, TopicRow,
};

/// A change to a catalogue.
#[derive(Debug, Default)]
pub struct Changes {
    /// Recordings that are new or changed.
    pub indexed: Vec<IndexedRecording>,
    /// The versions of these in the catalogue when they were found to be different. What has replaced them since is kept if it
    /// is newer: this change is late.
    pub seen: Vec<StoredFile>,
    /// Recordings that are gone, by their paths from the root.
    pub vanished: Vec<String>,
    /// Labels that users set or remove.
    pub labels: Vec<LabelChange>,
    /// The new patterns for paths.
    pub patterns: Option<Vec<KeyPattern>>,
}

/// A change to the labels of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelChange {
    /// The recording's path from the root.
    pub recording: String,
    /// Keys and values that are set.
    pub set: BTreeMap<String, String>,
    /// Keys that are removed.
    pub removed: BTreeSet<String>,
}

/// How often a change is attempted when other writers replace the head first.
const MAX_ATTEMPTS: u32 = 100;
/// Files of this size are written again for each recording that is gone.
const SMALL_FILE_BYTES: u64 = 4 << 20;
/// How long files that the head no longer names are kept, for readers of an older head.
const RETIRED_FILE_NANOS: i64 = 3_600_000_000_000;

impl Catalogue {
    /// Applies a change, also while other processes change the catalogue. What is already there changes nothing.
    ///
    /// # Errors
    /// When files cannot be read or written: then nothing has changed.
    pub fn commit(&self, changes: &Changes, now: Stamp) -> Result<Head, CatalogueError> {
        self.change(now, |draft| draft.apply(changes, now))
    }

    /// Applies a change to the current head, and again to the next one if that was replaced meanwhile.
    pub(crate) fn change(
        &self,
        now: Stamp,
        make: impl Fn(&mut Draft<'_>) -> Result<(), CatalogueError>,
    ) -> Result<Head, CatalogueError> {
        for attempt in 1..=MAX_ATTEMPTS {
            let (before, version) = match self.seen_head()? {
                Some((head, version)) => (head, Some(version)),
                None => (Head::empty(self.root.address()), None),
            };
            let mut draft = Draft::of(self, &before);
            if let Err(error) = make(&mut draft) {
                self.discard(draft.written.iter().map(String::as_str));
                return Err(error);
            }
            if !draft.is_changed && version.is_some() {
                return Ok(before);
            }
            if let Some(head) = self.publish(draft, &before, version.as_ref(), now)? {
                return Ok(head);
            }
            tracing::debug!(attempt, "another writer replaced the head first; retrying");
            std::thread::sleep(pause(attempt));
        }
        Err(CatalogueError::Contended {
            place: self.store.shown_address_of(HEAD),
            attempts: MAX_ATTEMPTS,
        })
    }

    /// Replaces the head that was seen by a new one; `None` if another writer has replaced it.
    fn publish(
        &self,
        draft: Draft<'_>,
        before: &Head,
        version: Option<&StoredVersion>,
        now: Stamp,
    ) -> Result<Option<Head>, CatalogueError> {
        let is_old = |since: i64| now.nanos().saturating_sub(since) > RETIRED_FILE_NANOS;
        let old = before
            .retired
            .iter()
            .filter(|retired| is_old(retired.since_ns));
        let forgotten: BTreeSet<String> = old.map(|retired| retired.file.clone()).collect();
        let Draft {
            mut head, written, ..
        } = draft;
        head.root = self.root.address();
        let head = head.following(before, &forgotten, now);
        let json = serde_json::to_vec_pretty(&head).map_err(|error| CatalogueError::BadHead {
            place: self.store.shown_address_of(HEAD),
            reason: error.to_string(),
        })?;
        match self.store.replace(HEAD, &json, version)? {
            Replaced::Done => {
                // No reader needs them now; those that remain are swept later.
                self.discard(forgotten.iter().map(String::as_str));
                Ok(Some(head))
            }
            Replaced::Conflict => {
                // The response may have been lost and the request repeated: then the other writer was this one.
                let current = self.head()?;
                let is_done = |current: &Head| written.iter().any(|file| current.knows(file));
                match current {
                    Some(current) if is_done(&current) => Ok(Some(current)),
                    _ => {
                        self.discard(written.iter().map(String::as_str));
                        Ok(None)
                    }
                }
            }
        }
    }

    /// Removes unused files. One that cannot be removed takes space, and nothing else.
    pub(crate) fn discard<'a>(&self, files: impl IntoIterator<Item = &'a str>) {
        for file in files {
            if let Err(error) = self.store.remove(file) {
                tracing::debug!(%error, "an unused file could not be removed");
            }
        }
    }
}

/// A pause that grows with each attempt, with jitter so that two writers do not collide again.
fn pause(attempt: u32) -> Duration {
    let mut byte = [0];
    // Without randomness they still collide less and less often.
    let _ = getrandom::fill(&mut byte);
    let longest = 20 * u64::from(attempt.min(20));
    Duration::from_millis(longest * u64::from(byte[0]) / 255)
}

/// A new head in preparation, and the files that were written for it.
pub(crate) struct Draft<'a> {
    catalogue: &'a Catalogue,
    pub head: Head,
    pub written: Vec<String>,
    pub is_changed: bool,
}

/// The changes to the recordings of a part.
#[derive(Default)]
struct PartChange<'a> {
    replaced: HashSet<&'a str>,
    vanished: HashSet<&'a str>,
    labels: HashMap<&'a str, Vec<&'a LabelChange>>,
}

impl<'a> Draft<'a> {
    fn of(catalogue: &'a Catalogue, before: &Head) -> Self {
        Draft {
            catalogue,
            head: before.clone(),
            written: Vec::new(),
            is_changed: false,
        }
    }

    /// Writes a table to a new file.
    pub fn write(&mut self, table: Table, batch: &RecordBatch) -> Result<PartFile, CatalogueError> {
        let generation = self.head.generation + 1;
        let file = write(&self.catalogue.store, table, generation, batch)?;
        self.written.push(file.file.clone());
        Ok(file)
    }

    fn apply(&mut self, changes: &Changes, now: Stamp) -> Result<(), CatalogueError> {
        if let Some(patterns) = &changes.patterns {
            self.read_paths_by(patterns)?;
        }
        let known = self.catalogue.known.of(&self.catalogue.store, &self.head)?;
        let mut incoming: HashMap<&str, &IndexedRecording> = HashMap::new();
        for indexed in &changes.indexed {
            incoming.insert(&indexed.row.recording, indexed);
        }
        let seen: HashMap<&str, &StoredFile> =
            (changes.seen.iter().map(|file| (file.path.as_str(), file))).collect();
        let vanished: HashSet<&str> = changes.vanished.iter().map(String::as_str).collect();
        let mut labels: HashMap<&str, Vec<&LabelChange>> = HashMap::new();
        for change in &changes.labels {
            labels.entry(&change.recording).or_default().push(change);
        }
        let mut parts: BTreeMap<usize, PartChange<'_>> = BTreeMap::new();
        for (number, part) in known.iter().enumerate() {
            for found in part.iter() {
                let name = found.recording.as_str();
                if let Some((&name, indexed)) = incoming.get_key_value(name) {
                    if replaces(&indexed.row, found, seen.get(name).copied()) {
                        parts.entry(number).or_default().replaced.insert(name);
                    } else {
                        incoming.remove(name);
                    }
                } else if let Some(&name) = vanished.get(name)
                    && !found.is_vanished
                {
                    parts.entry(number).or_default().vanished.insert(name);
                }
                if let Some((&name, changes)) = labels.get_key_value(name) {
                    let labels = &mut parts.entry(number).or_default().labels;
                    labels.insert(name, changes.clone());
                }
            }
        }
        let mut inherited = HashMap::new();
        // From the end, so that removing a part does not shift the indices before it.
        for (number, change) in parts.into_iter().rev() {
            self.change_part(number, &change, now, &mut inherited)?;
        }
        let mut new: Vec<IndexedRecording> = incoming.into_values().cloned().collect();
        for indexed in &mut new {
            if let Some(labels) = inherited.remove(&indexed.row.recording) {
                indexed.row.labels = labels;
            }
            indexed.row.settle();
        }
        self.add_part(new)
    }

    /// Rewrites a part with some of its recordings changed.
    fn change_part(
        &mut self,
        number: usize,
        change: &PartChange<'_>,
        now: Stamp,
        inherited: &mut HashMap<String, BTreeMap<String, String>>,
    ) -> Result<(), CatalogueError> {
        self.is_changed = true;
        let part = self.head.parts[number].clone();
        let rows = self.catalogue.rows_of(&part.recordings)?;
        let mut kept = Vec::with_capacity(rows.len());
        let mut gone: HashSet<String> = HashSet::new();
        let mut gone_before = 0;
        for mut row in rows {
            for change in change
                .labels
                .get(row.recording.as_str())
                .into_iter()
                .flatten()
            {
                row.labels.retain(|key, _| !change.removed.contains(key));
                row.labels.extend(change.set.clone());
                row.settle();
            }
            if change.replaced.contains(row.recording.as_str()) {
                inherited.insert(row.recording, row.labels);
                continue;
            }
            gone_before += usize::from(row.vanished.is_some());
            if change.vanished.contains(row.recording.as_str()) {
                row.vanished = Some(now);
            }
            gone.extend(row.vanished.is_some().then(|| row.recording.clone()));
            kept.push(row);
        }
        if kept.is_empty() {
            self.head.parts.remove(number);
            return Ok(());
        }
        let recordings = self.write_recordings(&part.recordings, &mut kept)?;
        let is_gone = |name: &str| change.replaced.contains(name) || gone.contains(name);
        let has_replaced = !change.replaced.is_empty();
        let mut changed = Part { recordings, ..part };
        if has_replaced || !change.vanished.is_empty() {
            changed.topics = self.without(&changed.topics, Table::Topics, is_gone)?;
        }
        if has_replaced || is_much_gone(&changed, gone_before, gone.len()) {
            changed.sections = self.without(&changed.sections, Table::Sections, is_gone)?;
            let summaries: Vec<&PartFile> = changed.summaries.iter().collect();
            changed.summaries = self.write_summaries(&summaries, is_gone)?;
        }
        self.head.parts[number] = changed;
        Ok(())
    }

    fn write_recordings(
        &mut self,
        before: &PartFile,
        rows: &mut [RecordingRow],
    ) -> Result<PartFile, CatalogueError> {
        let batch = RecordingRow::batch(rows)
            .map_err(|error| bad(&self.catalogue.store, before, &error))?;
        self.write(Table::Recordings, &batch)
    }

    /// A table without the rows of some recordings.
    fn without(
        &mut self,
        file: &PartFile,
        table: Table,
        is_gone: impl Fn(&str) -> bool,
    ) -> Result<PartFile, CatalogueError> {
        let store = &self.catalogue.store;
        let batch = read_all(store, file, table)?;
        let kept = without_recordings(&batch, is_gone);
        let kept = kept.map_err(|error| bad(store, file, &error))?;
        self.write(table, &kept)
    }

    /// Writes the summaries of several files to a new one, without those of removed recordings.
    pub fn write_summaries(
        &mut self,
        files: &[&PartFile],
        is_gone: impl Fn(&str) -> bool,
    ) -> Result<Option<PartFile>, CatalogueError> {
        let generation = self.head.generation + 1;
        let file = write_summaries(&self.catalogue.store, generation, files, is_gone)?;
        self.written
            .extend(file.iter().map(|file| file.file.clone()));
        Ok(file)
    }

    /// Writes recordings that are in no other part.
    fn add_part(&mut self, new: Vec<IndexedRecording>) -> Result<(), CatalogueError> {
        if new.is_empty() {
            return Ok(());
        }
        self.is_changed = true;
        let mut rows: Vec<RecordingRow> = new.iter().map(|indexed| indexed.row.clone()).collect();
        let tables = (|| {
            let recordings = RecordingRow::batch(&mut rows)?;
            let topics = TopicRow::batch(new.iter().flat_map(|indexed| &indexed.topics))?;
            let sections = SectionRow::batch(new.iter().flat_map(|indexed| &indexed.sections))?;
            let mut summaries: Vec<&SummaryRow> = (new.iter())
                .filter_map(|indexed| indexed.summary.as_ref())
                .collect();
            let summaries = SummaryRow::batch(&mut summaries)?;
            Ok::<_, arrow_schema::ArrowError>((
                recordings,
                sorted(Table::Topics, &topics)?,
                sorted(Table::Sections, &sections)?,
                summaries,
            ))
        })();
        let (recordings, topics, sections, summaries) =
            tables.map_err(|error| CatalogueError::BadTable {
                place: self.catalogue.address(),
                reason: error.to_string(),
            })?;
        let part = Part {
            recordings: self.write(Table::Recordings, &recordings)?,
            topics: self.write(Table::Topics, &topics)?,
            sections: self.write(Table::Sections, &sections)?,
            summaries: match summaries.num_rows() {
                0 => None,
                _ => Some(self.write(Table::Summaries, &summaries)?),
            },
        };
        self.head.parts.push(part);
        self.add_schemas(new.into_iter().flat_map(|indexed| indexed.schemas))
    }

    /// Writes the definitions that the catalogue does not have yet.
    fn add_schemas(
        &mut self,
        schemas: impl Iterator<Item = SchemaRow>,
    ) -> Result<(), CatalogueError> {
        let mut new: BTreeMap<String, SchemaRow> =
            schemas.map(|row| (row.hash.clone(), row)).collect();
        for file in &self.head.schemas {
            if new.is_empty() {
                break;
            }
            for row in self.catalogue.schemas_of(file)? {
                new.remove(&row.hash);
            }
        }
        if new.is_empty() {
            return Ok(());
        }
        let mut rows: Vec<SchemaRow> = new.into_values().collect();
        let file = self.write_schemas(&mut rows)?;
        self.head.schemas.push(file);
        Ok(())
    }

    pub fn write_schemas(&mut self, rows: &mut [SchemaRow]) -> Result<PartFile, CatalogueError> {
        let batch = SchemaRow::batch(rows).map_err(|error| CatalogueError::BadTable {
            place: self.catalogue.address(),
            reason: error.to_string(),
        })?;
        self.write(Table::Schemas, &batch)
    }

    /// Takes robot, site and date from all paths again.
    fn read_paths_by(&mut self, patterns: &[KeyPattern]) -> Result<(), CatalogueError> {
        let texts: Vec<String> = patterns.iter().map(ToString::to_string).collect();
        if texts == self.head.patterns {
            return Ok(());
        }
        self.is_changed = true;
        self.head.patterns = texts;
        for number in 0..self.head.parts.len() {
            let before = self.head.parts[number].recordings.clone();
            let mut rows = self.catalogue.rows_of(&before)?;
            for row in &mut rows {
                row.from_path = KeyPattern::read_by(patterns, &row.recording);
                row.settle();
            }
            self.head.parts[number].recordings = self.write_recordings(&before, &mut rows)?;
        }
        Ok(())
    }
}

/// Whether the large files of a part, its sections and summaries, are to be written without its vanished recordings, of which there
/// were some before. Each time their number doubles: where recordings are deleted one by one, such a file is seldom written.
fn is_much_gone(part: &Part, before: usize, now: usize) -> bool {
    let summaries = part.summaries.as_ref().map_or(0, |file| file.bytes);
    let is_small = part.sections.bytes + summaries <= SMALL_FILE_BYTES;
    now > before && (is_small || now.checked_ilog2() > before.checked_ilog2())
}

/// Whether a row replaces the known one: a different file is different, whatever its time. Only if another indexer has
/// written since `seen`, the newer version stays.
fn replaces(row: &RecordingRow, known: &RecordingVersion, seen: Option<&StoredFile>) -> bool {
    let is_same =
        row.size == known.size && row.e_tag == known.e_tag && row.modified == known.modified;
    if is_same {
        let has_vanished = known.is_vanished && row.vanished.is_none();
        return has_vanished || (row.indexed.is_some() && !known.is_indexed);
    }
    seen.is_some_and(|seen| known.is_version_of(seen)) || row.modified >= known.modified
}
