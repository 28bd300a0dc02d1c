//! The messages of a damaged file, found page by page.
//!
//! SQLite finds a row through the interior pages above it. If one of those is lost, it finds nothing below; if the end
//! of a payload is lost, it reads zeros. But every page of a table identifies itself, and rows of messages are unlike
//! those of other tables. So every page is scanned, and each message that is complete is kept. The table of topics may
//! be lost as well: then a message has only its topic's id, and the topic's name is made from it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::Path;

use asof_core::{Channel, Problem, ProblemKind, Row, SourceError, Stamp};

use super::Db3;
use super::database::{Database, Topic};
use super::directory::Directory;
use super::mapped::MessageTable;
use super::pages::{PageRow, Payload, Table};
use crate::filling::Filling;
use crate::problems::Problems;
use crate::sections::{Loaded, SectionQuery};
use crate::storage::{fill_at, read_exact_at};

/// Bytes read at once.
const WINDOW: usize = 1 << 20;
/// At most this many topics get a made-up name; recordings have fewer, but damage can look like any number of them.
const NAMELESS_AT_MOST: usize = 1000;

/// Where the messages of a damaged file are.
pub(crate) struct Salvaged {
    file: File,
    table: Table,
    /// Sorted by id.
    places: Vec<MessagePlace>,
}

#[derive(Debug, Clone, Copy)]
struct MessagePlace {
    id: i64,
    page: u32,
    cell: u16,
}

impl Salvaged {
    /// Scans every page of a file; `None` if its messages are not plain rows. Incomplete messages are reported as
    /// problems.
    pub fn find(
        database: &Database,
        path: &Path,
        topics: &[Topic],
        problems: &mut Problems,
    ) -> Result<Option<(Self, Directory)>, SourceError> {
        let Ok(place) = MessageTable::of(database) else {
            return Ok(None);
        };
        let failed = |cause| SourceError::Io {
            place: database.name().to_owned(),
            offset: 0,
            cause,
        };
        let file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let mut header = vec![0; 100];
        read_exact_at(&file, &mut header, 0).map_err(failed)?;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let Ok(table) = Table::of(&header, size, place.root, place.columns) else {
            return Ok(None);
        };
        let search = Search {
            file: &file,
            size: size as u64,
            table: &table,
            topics: ids_of(topics),
            found: Vec::new(),
        };
        let mut found = search.run().map_err(failed)?;
        // Of two rows with the same id, the later page was written later.
        found.sort_by_key(|(place, _)| (place.id, std::cmp::Reverse(place.page)));
        found.dedup_by_key(|(place, _)| place.id);
        leave_out_beyond(&ids_of(topics), &mut found, problems);
        let mut directory = Directory::default();
        let mut chains = Chains::new(&file, size as u64, &table);
        let mut places = Vec::new();
        for (place, row) in found {
            let (Some(topic), Some(time)) = (row.topic, row.time) else {
                continue;
            };
            if !chains.take(&row.payload) {
                let message = format!(
                    "message id {}: the rest of its payload of {} bytes is missing or damaged; it is skipped",
                    place.id, row.payload.len
                );
                problems.push(Problem::whole(ProblemKind::BadRecord, message));
                continue;
            }
            directory.add(
                place.id,
                topic,
                Stamp::from_nanos(time),
                row.payload.len.into(),
            );
            places.push(place);
        }
        directory.count();
        let salvaged = Salvaged {
            file,
            table,
            places,
        };
        Ok(Some((salvaged, directory)))
    }
}

struct Search<'a> {
    file: &'a File,
    size: u64,
    table: &'a Table,
    topics: BTreeSet<i64>,
    found: Vec<(MessagePlace, PageRow)>,
}

impl Search<'_> {
    fn run(mut self) -> io::Result<Vec<(MessagePlace, PageRow)>> {
        let (page_size, _) = self.table.page_sizes();
        let mut window = vec![0; WINDOW.next_multiple_of(page_size)];
        let mut at = 0u64;
        while at < self.size {
            let read = fill_at(self.file, &mut window, at)?;
            // There is nothing after the end of a truncated file.
            window[read..].fill(0);
            for (place, page) in window.chunks_exact(page_size).enumerate() {
                let start = at + (place * page_size) as u64;
                // The first page has the schema.
                if start > 0 && start < at + read as u64 {
                    let number = (start / page_size as u64) as u32 + 1;
                    self.look_at(page, number);
                }
            }
            if read < window.len() {
                break;
            }
            at += read as u64;
        }
        Ok(self.found)
    }

    fn look_at(&mut self, page: &[u8], number: u32) {
        for (cell, row) in self.table.rows_of_leaf(page, number) {
            // No other table of a bag has rows that end with a payload after two numbers.
            let is_alike = row.payload.ends_record();
            let is_message = row.time.is_some()
                && row
                    .topic
                    .is_some_and(|topic| is_alike || self.topics.contains(&topic));
            let end = row.payload.offset as u64 + u64::from(row.payload.local);
            if is_message && end <= self.size {
                let place = MessagePlace {
                    id: row.id,
                    page: number,
                    cell,
                };
                self.found.push((place, row));
            }
        }
    }
}

/// Drops messages on unnamed topics beyond the first [`NAMELESS_AT_MOST`].
fn leave_out_beyond(
    known: &BTreeSet<i64>,
    found: &mut Vec<(MessagePlace, PageRow)>,
    problems: &mut Problems,
) {
    let mut nameless = BTreeSet::new();
    let before = found.len();
    found.retain(|(_, row)| {
        let Some(topic) = row.topic.filter(|topic| !known.contains(topic)) else {
            return true;
        };
        if nameless.len() < NAMELESS_AT_MOST {
            nameless.insert(topic);
        }
        nameless.contains(&topic)
    });
    let beyond = before - found.len();
    if beyond > 0 {
        let message = format!(
            "{beyond} messages are on undefined topics beyond the first {NAMELESS_AT_MOST} of these and were skipped"
        );
        problems.push(Problem::whole(ProblemKind::UnknownReference, message));
    }
}

/// Topics for messages whose own topic is lost; each is reported as a problem.
pub(super) fn nameless_topics(
    topics: &[Topic],
    counts: &BTreeMap<i64, u64>,
    problems: &mut Problems,
) -> Vec<Topic> {
    let known = ids_of(topics);
    let unknown = counts.iter().filter(|(id, _)| !known.contains(id));
    let made = unknown.map(|(&id, count)| {
        let topic = format!("/unknown_topic_{id}");
        let message = format!(
            "{count} messages are on topic number {id}, whose name and type are not in the file any more; they come as {topic}"
        );
        problems.push(Problem {
            topic: Some(topic.clone()),
            ..Problem::whole(ProblemKind::UnknownReference, message)
        });
        Topic {
            id,
            channel: Channel {
                topic,
                // The only serialization that comes with rosbag2.
                message_encoding: "cdr".into(),
                ..Channel::default()
            },
        }
    });
    made.collect()
}

fn ids_of(topics: &[Topic]) -> BTreeSet<i64> {
    topics.iter().map(|topic| topic.id).collect()
}

/// The overflow pages of payloads. Each page is followed once, whatever leads to it: damaged pages may form loops.
struct Chains<'a> {
    file: &'a File,
    size: u64,
    table: &'a Table,
    /// The number of pages from a page to the end of its chain, itself included; `None` if it has no end.
    lengths: HashMap<u32, Option<u32>>,
    /// Pages that belong to a message.
    taken: HashSet<u32>,
}

impl<'a> Chains<'a> {
    fn new(file: &'a File, size: u64, table: &'a Table) -> Self {
        Chains {
            file,
            size,
            table,
            lengths: HashMap::new(),
            taken: HashSet::new(),
        }
    }

    /// Whether all pages of a payload exist and belong to no other message; they belong to this one then.
    fn take(&mut self, payload: &Payload) -> bool {
        let (_, usable) = self.table.page_sizes();
        let in_chain = payload.len.saturating_sub(payload.local) as usize;
        let needed = in_chain.div_ceil(usable - 4);
        if needed == 0 {
            return true;
        }
        let has_all = self.length(payload.next).is_some_and(|length| {
            let length = length as usize;
            length == needed || length > needed && !payload.ends_record()
        });
        if !has_all {
            return false;
        }
        let mut last = payload.next;
        for step in 0..needed {
            // What leads to pages of another message belongs to none.
            if !self.taken.insert(last) {
                return false;
            }
            if step + 1 < needed {
                match next_of(self.file, self.table, last) {
                    Some(next) => last = next,
                    None => return false,
                }
            }
        }
        let on_last = in_chain - (needed - 1) * (usable - 4);
        self.table.place_of(last).start as u64 + 4 + on_last as u64 <= self.size
    }

    fn length(&mut self, first: u32) -> Option<u32> {
        let mut path = Vec::new();
        let mut page = first;
        let mut length = loop {
            if page == 0 {
                break Some(0);
            }
            if let Some(known) = self.lengths.get(&page) {
                break *known;
            }
            // Without an end, until one is found: a loop comes back to this.
            self.lengths.insert(page, None);
            path.push(page);
            match next_of(self.file, self.table, page) {
                Some(next) => page = next,
                None => break None,
            }
        };
        for page in path.into_iter().rev() {
            length = length.map(|length| length + 1);
            self.lengths.insert(page, length);
        }
        length
    }
}

fn next_of(file: &File, table: &Table, page: u32) -> Option<u32> {
    let mut next = [0; 4];
    read_exact_at(file, &mut next, table.place_of(page).start as u64).ok()?;
    Some(u32::from_be_bytes(next))
}

impl Db3 {
    /// The wanted messages of a section of a damaged file.
    pub(super) fn load_salvaged(
        &self,
        salvaged: &Salvaged,
        index: usize,
        wanted: &SectionQuery,
    ) -> Result<Loaded, SourceError> {
        let section = &self.directory.sections[index];
        let places = &salvaged.places;
        let from = places.partition_point(|place| place.id < section.first);
        let to = places.partition_point(|place| place.id <= section.last);
        let failed = |cause| SourceError::Io {
            place: self.name.clone(),
            offset: 0,
            cause,
        };
        let (page_size, _) = salvaged.table.page_sizes();
        let mut page = vec![0; page_size];
        let mut number = 0;
        let mut filling = Filling::new(&self.pool, &self.limits, section.bytes);
        let mut rows: Vec<Row> = Vec::new();
        for place in &places[from..to] {
            if place.page != number {
                number = place.page;
                let start = salvaged.table.place_of(number).start as u64;
                let read = fill_at(&salvaged.file, &mut page, start).map_err(failed)?;
                page[read..].fill(0);
            }
            let found = salvaged.table.row_at(&page, number, place.cell);
            let Some(found) = found.filter(|found| found.id == place.id) else {
                self.report_message(place.id, "it is not where it was");
                continue;
            };
            let (Some(topic), Some(time)) = (found.topic, found.time) else {
                continue;
            };
            let time = Stamp::from_nanos(time);
            let channel = self
                .channel_of(topic)
                .filter(|&channel| wanted.wants(channel, &self.channels));
            let Some(channel) = channel.filter(|_| wanted.range.contains(time)) else {
                continue;
            };
            let offset = filling.used as u64;
            let payload = salvaged.payload(&found.payload).map_err(failed)?;
            if let Err(fault) = filling.push(&payload) {
                self.report_message(place.id, &fault);
                continue;
            }
            rows.push(Row {
                offset,
                len: filling.used as u64 - offset,
                ..self.row(index, place.id, channel, time)
            });
        }
        super::load::put_in_order(&mut rows);
        Ok(Loaded::of(filling.seal(), rows))
    }
}

impl Salvaged {
    fn payload(&self, payload: &Payload) -> io::Result<Vec<u8>> {
        let chain = self
            .table
            .chain(payload, |page| next_of(&self.file, &self.table, page))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        let (_, usable) = self.table.page_sizes();
        let mut bytes = vec![0; payload.len as usize];
        let local = (payload.local as usize).min(bytes.len());
        let (head, mut rest) = bytes.split_at_mut(local);
        read_exact_at(&self.file, head, payload.offset as u64)?;
        for page in chain {
            let (here, behind) = rest.split_at_mut(rest.len().min(usable - 4));
            read_exact_at(&self.file, here, self.table.place_of(page).start as u64 + 4)?;
            rest = behind;
        }
        Ok(bytes)
    }
}
