//! The last message of each topic as of a time, searched from the end of the file.

use std::collections::BTreeSet;

use asof_core::{Batch, Problem, ProblemKind, SourceError, Stamp, TimeRange, Topics};

use super::{Bag, Sections};
use crate::sections::{LastMessages, SectionQuery, batch_of};

impl Bag {
    /// Index records are read from the last chunk backwards until no earlier chunk can hold a later message; only then
    /// are the chunks that hold the answers decompressed, each once. When an index points to something that is not its
    /// message, the search starts over and reads that chunk instead of its index.
    pub(super) fn last_messages(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        let mut distrusted = BTreeSet::new();
        loop {
            let last = self.search(topics, at, &distrusted)?;
            match self.collect(last)? {
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
    ) -> Result<LastMessages, SourceError> {
        let mut last = LastMessages::default();
        let mut by_end: Vec<usize> = (0..self.sections.len())
            .filter(|&section| self.sections[section].range.start <= at)
            .collect();
        by_end.sort_by_key(|&section| std::cmp::Reverse(self.sections[section].range.end));
        for index in by_end {
            let section = &self.sections[index];
            let table = self.table();
            let may_be_later =
                |topic: &str| topics.contains(topic) && last.may_be_later(topic, section.range.end);
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
                    let channel = table.get(conn)?;
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
                self.search_section(index, topics, at, &mut last)?;
                continue;
            };
            for (conn, topic) in wanted {
                let latest = entries.of(conn).filter(|&(time, _)| time <= at).max();
                if let Some((log_time, offset)) = latest {
                    last.add_indexed(topic, index, log_time, offset);
                }
            }
        }
        Ok(last)
    }

    /// Opens a section and takes the last message of each topic in it.
    fn search_section(
        &self,
        index: usize,
        topics: &Topics,
        at: Stamp,
        last: &mut LastMessages,
    ) -> Result<(), SourceError> {
        let channels = self.channels();
        let wanted = SectionQuery::new(topics.clone(), TimeRange::from(..=at), &channels);
        let loaded = self.load_section(index, &wanted)?;
        last.add_loaded(&loaded, &self.channels());
        Ok(())
    }

    /// Opens the sections that hold the answers, each once, and extracts the messages; the inner error is the number of
    /// a section whose index is wrong.
    fn collect(&self, last: LastMessages) -> Result<Result<Batch, usize>, SourceError> {
        let (mut answers, to_load) = last.into_found();
        for (section, wanted) in to_load {
            let places: Vec<u64> = wanted.iter().map(|indexed| indexed.offset).collect();
            let (buffer, rows) = self.load_at(section, &places)?;
            let channels = self.channels();
            for (indexed, row) in wanted.into_iter().zip(rows) {
                match row.filter(|row| indexed.is(row, &channels)) {
                    Some(row) => answers.push((buffer.clone(), row)),
                    None => return Ok(Err(section)),
                }
            }
        }
        Ok(Ok(batch_of(self.channels(), answers)))
    }
}
