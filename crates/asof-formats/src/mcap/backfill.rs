//! What was known as of a time: the last message of each topic, found from the back.

use std::collections::BTreeMap;
use std::sync::Arc;

use asof_core::{Batch, Problem, ProblemKind, Row, SourceError, Stamp, TimeRange, Topics};
use bytes::Bytes;

use super::Mcap;
use crate::sections::{Wanted, order_of};

/// The best message found so far for a topic.
struct Best {
    log_time: Stamp,
    order: u64,
    place: Place,
}

enum Place {
    /// By a message index: in this section, at this byte of its contents.
    Indexed { section: usize, offset: u64 },
    /// In hand already.
    Loaded { buffer: Bytes, row: Row },
}

impl Mcap {
    /// Message indexes are read from the last chunk backwards until no earlier chunk can hold a later
    /// message; only then are the chunks that hold the answers decompressed, each once.
    pub(super) fn last_messages(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        let mut best = BTreeMap::new();
        self.search_indexes(topics, at, &mut best)?;
        self.search_unindexed(topics, at, &mut best)?;
        self.collect(topics, at, best)
    }

    fn search_indexes(
        &self,
        topics: &Topics,
        at: Stamp,
        best: &mut BTreeMap<String, Best>,
    ) -> Result<(), SourceError> {
        let table = self.table();
        let by_channel = self.directory.by_channel();
        for (&id, channel) in table.ids.iter().zip(table.channels.iter()) {
            if !topics.contains(&channel.topic) {
                continue;
            }
            for &index in by_channel.indexed.get(&id).into_iter().flatten().rev() {
                let section = &self.directory.sections[index as usize];
                if section.range.start > at {
                    continue;
                }
                if best
                    .get(&channel.topic)
                    .is_some_and(|best| best.log_time > section.range.end)
                {
                    break;
                }
                let super::directory::Contents::Indexed(entries) = &section.contents else {
                    continue;
                };
                let Some(&(_, place)) = entries.iter().find(|&&(entry, _)| entry == id) else {
                    continue;
                };
                let Some(times) = self.message_index(id, place)? else {
                    let message =
                        "there is no message index here, although the chunk's index says so";
                    self.report(Problem::at(ProblemKind::BadIndex, place, message));
                    self.search_section(index as usize, topics, at, best)?;
                    continue;
                };
                let index = index as usize;
                let candidates = times.iter().filter_map(|(time, offset)| {
                    let log_time = Stamp::from_unsigned_nanos(time)
                        .ok()
                        .filter(|&time| time <= at)?;
                    Some((log_time, order_of(index, offset), offset))
                });
                if let Some((log_time, order, offset)) = candidates.max() {
                    let place = Place::Indexed {
                        section: index,
                        offset,
                    };
                    consider(
                        best,
                        &channel.topic,
                        Best {
                            log_time,
                            order,
                            place,
                        },
                    );
                }
            }
        }
        Ok(())
    }

    /// Sections that nobody indexed have to be opened, as long as they may hold something later.
    fn search_unindexed(
        &self,
        topics: &Topics,
        at: Stamp,
        best: &mut BTreeMap<String, Best>,
    ) -> Result<(), SourceError> {
        for &index in self.directory.by_channel().unindexed.iter().rev() {
            let section = &self.directory.sections[index as usize];
            if section.range.start > at {
                continue;
            }
            let table = self.table();
            let may_be_later = |topic: &str| {
                best.get(topic)
                    .is_none_or(|best| best.log_time <= section.range.end)
            };
            let is_worth_it = section.contents.may_hold(|id| {
                table.index_of(id).is_none_or(|channel| {
                    let topic = &table.channels[channel as usize].topic;
                    topics.contains(topic) && may_be_later(topic)
                })
            });
            let none_left = !table
                .channels
                .iter()
                .any(|c| topics.contains(&c.topic) && may_be_later(&c.topic));
            if is_worth_it && !none_left {
                self.search_section(index as usize, topics, at, best)?;
            }
        }
        Ok(())
    }

    /// Opens a section and takes the last message of each topic in it.
    fn search_section(
        &self,
        index: usize,
        topics: &Topics,
        at: Stamp,
        best: &mut BTreeMap<String, Best>,
    ) -> Result<(), SourceError> {
        let wanted = Wanted::new(
            topics.clone(),
            TimeRange::from(..=at),
            &self.table().channels,
        );
        let loaded = self.load_section(index, &wanted)?;
        let table = self.table();
        for row in loaded.rows {
            let place = Place::Loaded {
                buffer: loaded.buffers[row.buffer as usize].clone(),
                row,
            };
            let topic = &table.channels[row.channel as usize].topic;
            consider(
                best,
                topic,
                Best {
                    log_time: row.log_time,
                    order: row.order,
                    place,
                },
            );
        }
        Ok(())
    }

    /// Opens the sections that hold the answers, each once, and cuts the messages out.
    fn collect(
        &self,
        topics: &Topics,
        at: Stamp,
        best: BTreeMap<String, Best>,
    ) -> Result<Batch, SourceError> {
        let mut answers = Vec::new();
        let mut by_section: BTreeMap<usize, Vec<(String, Best, u64)>> = BTreeMap::new();
        for (topic, best) in best {
            match best.place {
                Place::Loaded { buffer, row } => answers.push((buffer, row)),
                Place::Indexed { section, offset } => {
                    by_section
                        .entry(section)
                        .or_default()
                        .push((topic, best, offset));
                }
            }
        }
        for (section, wanted) in by_section {
            let places: Vec<u64> = wanted.iter().map(|&(_, _, offset)| offset).collect();
            let found = self.load_at(section, &places)?;
            let table = self.table();
            for ((topic, best, _), found) in wanted.into_iter().zip(found) {
                let is_right = |(_, row): &(Bytes, Row)| {
                    row.log_time == best.log_time
                        && table.channels[row.channel as usize].topic == topic
                };
                match found.filter(is_right) {
                    Some(found) => answers.push(found),
                    None => answers.extend(self.find_without_index(section, topics, &topic, at)?),
                }
            }
        }
        let (buffers, rows): (Vec<Bytes>, Vec<Row>) = answers.into_iter().unzip();
        let rows = rows
            .into_iter()
            .enumerate()
            .map(|(index, row)| Row {
                buffer: index as u32,
                ..row
            })
            .collect();
        Ok(Batch::new(
            Arc::clone(&self.table().channels),
            buffers,
            rows,
        ))
    }

    /// A message index pointed to something else: the topic is searched for by reading backwards.
    fn find_without_index(
        &self,
        section: usize,
        topics: &Topics,
        topic: &str,
        at: Stamp,
    ) -> Result<Option<(Bytes, Row)>, SourceError> {
        debug_assert!(topics.contains(topic));
        let message = "a message index points to something that is not its message; the chunks were read instead";
        let offset = self.directory.sections[section].offset;
        self.report(Problem::at(ProblemKind::BadIndex, offset, message).on_topic(topic));
        let only = Topics::named([topic]);
        let mut by_end: Vec<usize> = (0..self.directory.sections.len()).collect();
        by_end.sort_by_key(|&index| std::cmp::Reverse(self.directory.sections[index].range.end));
        let mut best: BTreeMap<String, Best> = BTreeMap::new();
        for index in by_end {
            let section = &self.directory.sections[index];
            let is_later = best
                .get(topic)
                .is_some_and(|best| best.log_time > section.range.end);
            if is_later {
                break;
            }
            if section.range.start <= at {
                self.search_section(index, &only, at, &mut best)?;
            }
        }
        Ok(best.remove(topic).and_then(|best| match best.place {
            Place::Loaded { buffer, row } => Some((buffer, row)),
            Place::Indexed { .. } => None,
        }))
    }
}

fn consider(best: &mut BTreeMap<String, Best>, topic: &str, candidate: Best) {
    match best.get_mut(topic) {
        Some(known) if (known.log_time, known.order) >= (candidate.log_time, candidate.order) => {}
        Some(known) => *known = candidate,
        None => drop(best.insert(topic.to_owned(), candidate)),
    }
}
