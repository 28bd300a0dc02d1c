//! What a catalogue holds as a whole, mostly from the bounds of its row groups.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use asof_core::TimeRange;
use parquet::file::metadata::RowGroupMetaData;

use crate::catalogue::Catalogue;
use crate::error::CatalogueError;
use crate::head::{Head, PartFile};
use crate::reading::{self, PartReader, Reading, bounds, nulls, only_text};
use crate::tables::{Table, ints, text};

/// What a catalogue holds as a whole: without any recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// The generation of the head that says so.
    pub generation: u64,
    /// Every topic with each of its types, sorted.
    pub kinds: BTreeSet<TopicKind>,
    /// From the first start to the last end of its recordings.
    pub range: TimeRange,
    /// The recordings, including those below.
    pub recordings: u64,
    /// Those that are gone.
    pub vanished: u64,
    /// Those that could not be read when they were indexed.
    pub unreadable: u64,
}

/// A topic with one type, as some recordings have it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopicKind {
    /// The topic's name.
    pub topic: String,
    /// Its type; empty without a schema.
    pub type_name: String,
    /// How its payloads are encoded.
    pub encoding: String,
    /// The hash of its definition; `None` without a schema.
    pub schema_hash: Option<String>,
}

/// A topic over all recordings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicTotal {
    /// Its type; of several, the first by name.
    pub type_name: String,
    /// Its messages, of the recordings where they are known; `None` if they are nowhere.
    pub messages: Option<u64>,
}

impl TopicTotal {
    /// Adds a topic of a recording.
    pub fn note(
        totals: &mut BTreeMap<String, TopicTotal>,
        topic: &str,
        type_name: &str,
        messages: Option<u64>,
    ) {
        let Some(total) = totals.get_mut(topic) else {
            let type_name = type_name.to_owned();
            totals.insert(
                topic.to_owned(),
                TopicTotal {
                    type_name,
                    messages,
                },
            );
            return;
        };
        if type_name < total.type_name.as_str() {
            type_name.clone_into(&mut total.type_name);
        }
        let known = total.messages.into_iter().chain(messages);
        total.messages = known.reduce(u64::saturating_add);
    }
}

/// A table of a catalogue that is read as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatalogueTable {
    /// A row per recording.
    Recordings,
    /// A row per recording, topic and type.
    Topics,
}

/// The columns of a kind.
const KIND: [&str; 4] = ["topic", "type", "encoding", "schema_hash"];

impl Catalogue {
    /// What it holds, of the current head. Of a row group with one topic of one type, only the bounds are read.
    ///
    /// # Errors
    /// When there is no catalogue, or it cannot be read.
    pub fn contents(&self) -> Result<Contents, CatalogueError> {
        let head = self.existing_head()?;
        let mut contents = Contents {
            generation: head.generation,
            kinds: BTreeSet::new(),
            range: TimeRange::EMPTY,
            recordings: head.recordings(),
            vanished: 0,
            unreadable: 0,
        };
        for part in &head.parts {
            if part.recordings.rows > 0 {
                let groups = PartReader::open(&self.store, &part.recordings, Table::Recordings)?;
                for group in groups.groups() {
                    let all = u64::try_from(group.num_rows()).unwrap_or_default();
                    contents.vanished += all - nulls(group, "vanished").unwrap_or(all).min(all);
                    let ends = bounds(group, "start_ns").zip(bounds(group, "end_ns"));
                    if let Some(((first, _), (_, last))) = ends {
                        let range = TimeRange::new(first.into(), last.into());
                        contents.range = contents.range.cover(range);
                    }
                    contents.unreadable += nulls(group, "format").unwrap_or_default();
                }
            }
            self.note_kinds(&part.topics, &mut contents.kinds)?;
        }
        Ok(contents)
    }

    fn note_kinds(
        &self,
        file: &PartFile,
        kinds: &mut BTreeSet<TopicKind>,
    ) -> Result<(), CatalogueError> {
        let alone = RefCell::new(BTreeSet::new());
        let has_several = |group: &RowGroupMetaData| match only_kind(group) {
            Some(kind) => {
                alone.borrow_mut().insert(kind);
                false
            }
            None => true,
        };
        let reading = Reading {
            table: Table::Topics,
            columns: Some(&KIND),
            may_hold: &has_several,
            filters: Vec::new(),
        };
        reading::each(&self.store, file, reading, &mut |batch| {
            note_rows(&batch, kinds)
        })?;
        kinds.append(&mut alone.borrow_mut());
        Ok(())
    }

    /// Every topic with its messages. Of a row group with one topic of one type, only the numbers are read.
    ///
    /// # Errors
    /// When there is no catalogue, or it cannot be read.
    pub fn topic_totals(&self) -> Result<BTreeMap<String, TopicTotal>, CatalogueError> {
        let mut totals = BTreeMap::new();
        let head = self.existing_head()?;
        let files = head.parts.iter().map(|part| &part.topics);
        for file in files.filter(|file| file.rows > 0) {
            let reader = PartReader::open(&self.store, file, Table::Topics)?;
            for (number, group) in reader.groups().iter().enumerate() {
                let only = only_kind(group);
                let columns = &["messages", "topic", "type"][..if only.is_some() { 1 } else { 3 }];
                let batches = reader.read_columns(number, columns);
                for batch in batches.map_err(|error| reading::bad(&self.store, file, &error))? {
                    note_totals(&batch, only.as_ref(), &mut totals)
                        .map_err(|error| reading::bad(&self.store, file, &error))?;
                }
            }
        }
        Ok(totals)
    }

    /// Reads these columns of a table, one row group after the other, until `each` returns false.
    ///
    /// # Errors
    /// When there is no catalogue, or it cannot be read.
    pub fn read_table(
        &self,
        table: CatalogueTable,
        columns: &[&str],
        each: &mut dyn FnMut(RecordBatch) -> bool,
    ) -> Result<(), CatalogueError> {
        let head: Head = self.existing_head()?;
        for part in &head.parts {
            let (file, table) = match table {
                CatalogueTable::Recordings => (&part.recordings, Table::Recordings),
                CatalogueTable::Topics => (&part.topics, Table::Topics),
            };
            if file.rows == 0 {
                continue;
            }
            let reader = PartReader::open(&self.store, file, table)?;
            for group in 0..reader.groups().len() {
                let batches = reader.read_columns(group, columns);
                for batch in batches.map_err(|error| reading::bad(&self.store, file, &error))? {
                    if !each(batch) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}

/// The kind of all rows of a group, if it is one.
fn only_kind(group: &RowGroupMetaData) -> Option<TopicKind> {
    let only = |column: &str| only_text(group, column).map(str::to_owned);
    let has_none = nulls(group, "schema_hash") == u64::try_from(group.num_rows()).ok();
    Some(TopicKind {
        topic: only("topic")?,
        type_name: only("type")?,
        encoding: only("encoding")?,
        schema_hash: if has_none {
            None
        } else {
            Some(only("schema_hash")?)
        },
    })
}

fn note_totals(
    batch: &RecordBatch,
    only: Option<&TopicKind>,
    totals: &mut BTreeMap<String, TopicTotal>,
) -> Result<(), ArrowError> {
    let counts = ints(batch, "messages")?;
    let count_of = |count: i64| u64::try_from(count).unwrap_or_default();
    if let Some(only) = only {
        let sum = counts
            .iter()
            .flatten()
            .map(count_of)
            .reduce(u64::saturating_add);
        TopicTotal::note(totals, &only.topic, &only.type_name, sum);
        return Ok(());
    }
    for (row, count) in counts.iter().enumerate() {
        let topic = text(batch, "topic", row)?.unwrap_or_default();
        let type_name = text(batch, "type", row)?.unwrap_or_default();
        TopicTotal::note(totals, topic, type_name, count.map(count_of));
    }
    Ok(())
}

fn note_rows(batch: &RecordBatch, kinds: &mut BTreeSet<TopicKind>) -> Result<(), ArrowError> {
    let mut last = [None; 4];
    for row in 0..batch.num_rows() {
        let mut found = [None; 4];
        for (found, column) in found.iter_mut().zip(KIND) {
            *found = text(batch, column, row)?;
        }
        // Rows are sorted by topic, and mostly repeat the one before.
        if row > 0 && found == last {
            continue;
        }
        last = found;
        let owned = |text: Option<&str>| text.unwrap_or_default().to_owned();
        kinds.insert(TopicKind {
            topic: owned(found[0]),
            type_name: owned(found[1]),
            encoding: owned(found[2]),
            schema_hash: found[3].map(str::to_owned),
        });
    }
    Ok(())
}
