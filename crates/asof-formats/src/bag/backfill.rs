//! What was known as of a time: the last message of each topic, found from the back.

use std::collections::{BTreeMap, BTreeSet};

use asof_core::{Batch, Problem, ProblemKind, Row, SourceError, Stamp, TimeRange, Topics};
use bytes::Bytes;

use super::{Bag, Sections};
use crate::sections::{Wanted, order_of};

/// The best message found so far for a topic.
struct Best {
    log_time: Stamp,
    order: u64,
    place: Place,
}

enum Place {
    /// By an index record: in this section, at this byte of its contents.
    Indexed { section: usize, offset: u64 },
    /// In hand already.
    Loaded { buffer: Bytes, row: Row },
}

impl Bag {
    /// Index records are read from the last chunk backwards until no earlier chunk can hold a later message;
    /// only then are the chunks that hold the answers decompressed, each once. An index that turns out to
    /// point elsewhere is no longer believed, and the search starts over.
    pub(super) fn last_messages(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        let mut distrusted = BTreeSet::new();
        loop {
            let best = self.search(topics, at, &distrusted)?;
            match self.collect(best)? {
                Ok(batch) => return Ok(batch),
                Err(section) => {
                    let message = "an index record points to something that is not its message; the chunk was read instead";
                    let offset = self.sections[section].offset;
                    self.report(Problem::at(ProblemKind::BadIndex, offset, message));
                    distrusted.insert(section);
                }
            }
        }
    }

    fn search(
        &self,
        topics: &Topics,
        at: Stamp,
        distrusted: &BTreeSet<usize>,
    ) -> Result<BTreeMap<String, Best>, SourceError> {
        let mut best: BTreeMap<String, Best> = BTreeMap::new();
        let mut by_end: Vec<usize> = (0..self.sections.len())
            .filter(|&section| self.sections[section].range.start <= at)
            .collect();
        by_end.sort_by_key(|&section| std::cmp::Reverse(self.sections[section].range.end));
        for index in by_end {
            let section = &self.sections[index];
            let table = self.table();
            let may_be_later = |topic: &str| {
                topics.contains(topic)
                    && best
                        .get(topic)
                        .is_none_or(|best| best.log_time <= section.range.end)
            };
            if !table
                .channels
                .iter()
                .any(|channel| may_be_later(&channel.topic))
            {
                break;
            }
            let counts = section.contents.known().unwrap_or_default();
            let wanted: Vec<(u32, &str)> = counts
                .iter()
                .filter_map(|&(conn, _)| {
                    let channel = &table.channels[table.index_of(conn)? as usize];
                    may_be_later(&channel.topic).then_some((conn, channel.topic.as_str()))
                })
                .collect();
            if wanted.is_empty() {
                continue;
            }
            let entries = if distrusted.contains(&index) {
                None
            } else {
                self.chunk_index(section)?
            };
            let Some(entries) = entries else {
                self.search_section(index, topics, at, &mut best)?;
                continue;
            };
            for (conn, topic) in wanted {
                let last = entries.of(conn).filter(|&(time, _)| time <= at).max();
                if let Some((log_time, offset)) = last {
                    let order = order_of(index, offset);
                    let place = Place::Indexed {
                        section: index,
                        offset,
                    };
                    consider(
                        &mut best,
                        topic,
                        Best {
                            log_time,
                            order,
                            place,
                        },
                    );
                }
            }
        }
        Ok(best)
    }

    /// Opens a section and takes the last message of each topic in it.
    fn search_section(
        &self,
        index: usize,
        topics: &Topics,
        at: Stamp,
        best: &mut BTreeMap<String, Best>,
    ) -> Result<(), SourceError> {
        let channels = self.channels();
        let wanted = Wanted::new(topics.clone(), TimeRange::from(..=at), &channels);
        let loaded = self.load_section(index, &wanted)?;
        let channels = self.channels();
        for row in loaded.rows {
            let candidate = Best {
                log_time: row.log_time,
                order: row.order,
                place: Place::Loaded {
                    buffer: loaded.buffers[row.buffer as usize].clone(),
                    row,
                },
            };
            consider(best, &channels[row.channel as usize].topic, candidate);
        }
        Ok(())
    }

    /// Opens the sections that hold the answers, each once, and cuts the messages out; the inner error is a
    /// section whose index is wrong.
    fn collect(&self, best: BTreeMap<String, Best>) -> Result<Result<Batch, usize>, SourceError> {
        let mut answers: Vec<(Bytes, Row)> = Vec::new();
        let mut by_section: BTreeMap<usize, Vec<(String, Stamp, u64)>> = BTreeMap::new();
        for (topic, best) in best {
            match best.place {
                Place::Loaded { buffer, row } => answers.push((buffer, row)),
                Place::Indexed { section, offset } => by_section
                    .entry(section)
                    .or_default()
                    .push((topic, best.log_time, offset)),
            }
        }
        for (section, wanted) in by_section {
            let places: Vec<u64> = wanted.iter().map(|&(_, _, offset)| offset).collect();
            let (buffer, rows) = self.load_at(section, &places)?;
            let channels = self.channels();
            for ((topic, log_time, _), row) in wanted.into_iter().zip(rows) {
                let is_right = |row: &Row| {
                    row.log_time == log_time && channels[row.channel as usize].topic == topic
                };
                match row.filter(is_right) {
                    Some(row) => answers.push((buffer.clone(), row)),
                    None => return Ok(Err(section)),
                }
            }
        }
        let (buffers, mut rows): (Vec<Bytes>, Vec<Row>) = answers.into_iter().unzip();
        for (index, row) in rows.iter_mut().enumerate() {
            row.buffer = index as u32;
        }
        Ok(Ok(Batch::new(self.channels(), buffers, rows)))
    }
}

fn consider(best: &mut BTreeMap<String, Best>, topic: &str, candidate: Best) {
    match best.get_mut(topic) {
        Some(known) if (known.log_time, known.order) >= (candidate.log_time, candidate.order) => {}
        Some(known) => *known = candidate,
        None => drop(best.insert(topic.to_owned(), candidate)),
    }
}
