//! The last message of each topic as of a time, searched from the end of the file.

use std::sync::Arc;

use asof_core::{Batch, Problem, ProblemKind, Row, SourceError, Stamp, TimeRange, Topics};
use bytes::Bytes;

use super::Mcap;
use crate::sections::{LastMessages, SectionQuery, batch_of};

impl Mcap {
    /// Message indexes are read from the last chunk backwards until no earlier chunk can hold a later
    /// message; only then are the chunks that hold the answers decompressed, each once.
    pub(super) fn last_messages(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        let mut last = LastMessages::default();
        self.search_indexes(topics, at, &mut last)?;
        self.search_unindexed(topics, at, &mut last)?;
        self.collect(topics, at, last)
    }

    fn search_indexes(
        &self,
        topics: &Topics,
        at: Stamp,
        last: &mut LastMessages,
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
                if !last.may_be_later(&channel.topic, section.range.end) {
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
                    self.search_section(index as usize, topics, at, last)?;
                    continue;
                };
                let candidates = times.iter().filter_map(|(time, offset)| {
                    let log_time = Stamp::from_unsigned_nanos(time)
                        .ok()
                        .filter(|&time| time <= at)?;
                    Some((log_time, offset))
                });
                if let Some((log_time, offset)) = candidates.max() {
                    last.add_indexed(&channel.topic, index as usize, log_time, offset);
                }
            }
        }
        Ok(())
    }

    /// Sections without an index have to be read if they may hold a later message.
    fn search_unindexed(
        &self,
        topics: &Topics,
        at: Stamp,
        last: &mut LastMessages,
    ) -> Result<(), SourceError> {
        for &index in self.directory.by_channel().unindexed.iter().rev() {
            let section = &self.directory.sections[index as usize];
            if section.range.start > at {
                continue;
            }
            let table = self.table();
            let may_be_later = |topic: &str| last.may_be_later(topic, section.range.end);
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
                self.search_section(index as usize, topics, at, last)?;
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
        last: &mut LastMessages,
    ) -> Result<(), SourceError> {
        let wanted = SectionQuery::new(
            topics.clone(),
            TimeRange::from(..=at),
            &self.table().channels,
        );
        let loaded = self.load_section(index, &wanted)?;
        last.add_loaded(&loaded, &self.table().channels);
        Ok(())
    }

    /// Opens the sections that hold the answers, each once, and extracts the messages.
    fn collect(
        &self,
        topics: &Topics,
        at: Stamp,
        last: LastMessages,
    ) -> Result<Batch, SourceError> {
        let (mut answers, to_load) = last.into_found();
        for (section, wanted) in to_load {
            let places: Vec<u64> = wanted.iter().map(|indexed| indexed.offset).collect();
            let found = self.load_at(section, &places)?;
            let table = self.table();
            for (indexed, found) in wanted.into_iter().zip(found) {
                let found = found.filter(|(_, row)| indexed.is(row, &table.channels));
                answers.extend(match found {
                    None => self.find_without_index(section, topics, &indexed.topic, at)?,
                    found => found,
                });
            }
        }
        Ok(batch_of(Arc::clone(&self.table().channels), answers))
    }

    /// Searches a topic by reading sections backwards, after a message index pointed to something else.
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
        let mut last = LastMessages::default();
        for index in by_end {
            let section = &self.directory.sections[index];
            if !last.may_be_later(topic, section.range.end) {
                break;
            }
            if section.range.start <= at {
                self.search_section(index, &only, at, &mut last)?;
            }
        }
        let (mut found, _) = last.into_found();
        Ok(found.pop())
    }
}
