//! What was known as of a time: the last message of each topic, found from the back.

use std::collections::BTreeMap;
use std::sync::Arc;

use asof_core::{Batch, Row, SourceError, Stamp, TimeRange, Topics};
use bytes::Bytes;

use super::Db3Shared;
use crate::sections::Wanted;

impl Db3Shared {
    /// Sections are read from the last backwards, as long as an earlier one can hold a later message.
    pub fn backfill(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        let sections = &self.directory.sections;
        let mut by_end: Vec<usize> = (0..sections.len())
            .filter(|&section| sections[section].range.start <= at)
            .collect();
        by_end.sort_by_key(|&section| std::cmp::Reverse(sections[section].range.end));
        let mut best: BTreeMap<&str, (Bytes, Row)> = BTreeMap::new();
        for index in by_end {
            let section = &sections[index];
            let lacking: Vec<&str> = section
                .topics
                .iter()
                .filter_map(|&(topic, _)| {
                    let channel = &self.channels[self.channel_of(topic)? as usize];
                    let topic = channel.topic.as_str();
                    let may_be_later = best
                        .get(topic)
                        .is_none_or(|(_, row)| row.log_time <= section.range.end);
                    (topics.contains(topic) && may_be_later).then_some(topic)
                })
                .collect();
            if lacking.is_empty() {
                continue;
            }
            let range = TimeRange::from(..=at);
            let wanted = Wanted::new(Topics::named(lacking), range, &self.channels);
            let loaded = self.load_section(index, &wanted)?;
            for row in loaded.rows {
                let topic = self.channels[row.channel as usize].topic.as_str();
                let is_better = best.get(topic).is_none_or(|(_, known)| {
                    (known.log_time, known.order) < (row.log_time, row.order)
                });
                if is_better {
                    best.insert(topic, (loaded.buffer.clone(), row));
                }
            }
        }
        let (buffers, mut rows): (Vec<Bytes>, Vec<Row>) = best.into_values().unzip();
        for (index, row) in rows.iter_mut().enumerate() {
            row.buffer = index as u32;
        }
        Ok(Batch::new(Arc::clone(&self.channels), buffers, rows))
    }
}
