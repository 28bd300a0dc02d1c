//! The bytes that opening a recording reads, as stored in the catalogue.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use asof_formats::{FilePiece, Store};

use crate::error::CatalogueError;
use crate::head::{Head, PartFile};
use crate::reading::{PartReader, bad, may_hold_text};
use crate::tables::{SummaryRow, Table};

/// The summaries of a catalogue. They are read as recordings are opened, a row group at a time.
pub(crate) struct Summaries(Mutex<State>);

struct State {
    files: Vec<(PartFile, Option<PartReader>)>,
    /// Cached row groups, the newest last.
    groups: VecDeque<Group>,
}

struct Group {
    bytes: usize,
    pieces: HashMap<String, Vec<FilePiece>>,
}

/// The most bytes that cached groups may hold, apart from the newest.
const CACHE_BYTES: usize = 16 << 20;

impl Summaries {
    /// The summaries that a head names. Nothing is read yet.
    pub fn of(head: &Head) -> Self {
        let parts = head.parts.iter().filter_map(|part| part.summaries.clone());
        Summaries(Mutex::new(State {
            files: parts.map(|part| (part, None)).collect(),
            groups: VecDeque::new(),
        }))
    }

    /// The pieces of a recording that opening it reads; empty if the catalogue does not have them.
    ///
    /// One thread reads at a time: the group that it reads is the one that most others wait for.
    pub fn pieces(&self, store: &Store, recording: &str) -> Result<Vec<FilePiece>, CatalogueError> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let State { files, groups } = &mut *state;
        let mut kept = groups.iter();
        if let Some(found) = kept.find_map(|group| group.pieces.get(recording)) {
            return Ok(found.clone());
        }
        for (part, reader) in files {
            let reader = match reader {
                Some(reader) => reader,
                None => reader.insert(PartReader::open(store, part, Table::Summaries)?),
            };
            let name = recording.as_bytes();
            for number in 0..reader.groups().len() {
                if !may_hold_text(&reader.groups()[number], "recording", name, Some(name)) {
                    continue;
                }
                let group = read(reader, number).map_err(|error| bad(store, part, &error))?;
                let found = group.pieces.get(recording).cloned();
                keep(groups, group);
                if let Some(found) = found {
                    return Ok(found);
                }
            }
        }
        Ok(Vec::new())
    }
}

fn read(reader: &PartReader, number: usize) -> Result<Group, parquet::errors::ParquetError> {
    let mut group = Group {
        bytes: 0,
        pieces: HashMap::new(),
    };
    for batch in reader.read_group(number)? {
        for row in SummaryRow::rows(&batch)? {
            group.bytes += row.bytes();
            group.pieces.insert(row.recording, row.pieces);
        }
    }
    Ok(group)
}

fn keep(groups: &mut VecDeque<Group>, group: Group) {
    groups.push_back(group);
    let held = |groups: &VecDeque<Group>| groups.iter().map(|group| group.bytes).sum::<usize>();
    while groups.len() > 1 && held(groups) > CACHE_BYTES {
        groups.pop_front();
    }
}
