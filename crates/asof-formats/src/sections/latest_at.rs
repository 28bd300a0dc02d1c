//! The last message of each topic as of a time, searched from the end of the file.

use std::collections::BTreeMap;
use std::sync::Arc;

use asof_core::{Batch, Channel, Row, SourceError, Stamp, TimeRange, Topics};
use bytes::Bytes;

use super::{Loaded, SectionQuery, Sections, order_of};

/// Sections are read from the last backwards, as long as an earlier one can hold a later message of a topic.
pub(super) fn latest_at(
    file: &dyn Sections,
    topics: &Topics,
    at: Stamp,
) -> Result<Batch, SourceError> {
    let channels = file.channels();
    let range = TimeRange::from(..=at);
    let everything = SectionQuery::new(topics.clone(), range, &channels);
    let mut by_end = file.needed(&everything);
    by_end.sort_by_key(|&section| std::cmp::Reverse(file.range_of(section).end));
    let mut last = LastMessages::default();
    for section in by_end {
        let end = file.range_of(section).end;
        let lacking = channels.iter().map(|channel| channel.topic.as_str());
        let lacking =
            lacking.filter(|topic| topics.contains(topic) && last.may_be_later(topic, end));
        let wanted = SectionQuery::new(Topics::named(lacking), range, &channels);
        if file.may_hold(section, &wanted) {
            last.add_loaded(&file.load(section, &wanted)?, &channels);
        }
    }
    let (found, _) = last.into_found();
    Ok(batch_of(channels, found))
}

/// The last message of each topic found so far.
#[derive(Default)]
pub(crate) struct LastMessages(BTreeMap<String, Last>);

struct Last {
    log_time: Stamp,
    order: u64,
    place: Found,
}

enum Found {
    /// From an index: in this section, at this offset of its contents.
    Indexed { section: usize, offset: u64 },
    /// Already loaded.
    Loaded { buffer: Bytes, row: Row },
}

/// A message according to an index.
pub(crate) struct Indexed {
    pub topic: String,
    pub log_time: Stamp,
    pub offset: u64,
}

/// Messages according to indexes, by section.
type ToLoad = BTreeMap<usize, Vec<Indexed>>;

impl LastMessages {
    /// Whether a section that ends at `end` may hold a later message of a topic than the one found.
    pub fn may_be_later(&self, topic: &str, end: Stamp) -> bool {
        let last = self.0.get(topic);
        last.is_none_or(|last| last.log_time <= end)
    }

    /// Adds an index entry of a topic: a message at this offset of a section's contents.
    pub fn add_indexed(&mut self, topic: &str, section: usize, log_time: Stamp, offset: u64) {
        let place = Found::Indexed { section, offset };
        self.consider(topic, log_time, order_of(section, offset), place);
    }

    /// Adds the messages of a section.
    pub fn add_loaded(&mut self, loaded: &Loaded, channels: &[Arc<Channel>]) {
        for &row in &loaded.rows {
            let buffer = loaded.buffers[row.buffer as usize].clone();
            let topic = &channels[row.channel as usize].topic;
            let place = Found::Loaded { buffer, row };
            self.consider(topic, row.log_time, row.order, place);
        }
    }

    /// The loaded messages, and those still to be loaded, by section.
    pub fn into_found(self) -> (Vec<(Bytes, Row)>, ToLoad) {
        let mut found = Vec::new();
        let mut to_load = ToLoad::new();
        for (
            topic,
            Last {
                log_time, place, ..
            },
        ) in self.0
        {
            match place {
                Found::Loaded { buffer, row } => found.push((buffer, row)),
                Found::Indexed { section, offset } => {
                    to_load.entry(section).or_default().push(Indexed {
                        topic,
                        log_time,
                        offset,
                    });
                }
            }
        }
        (found, to_load)
    }

    fn consider(&mut self, topic: &str, log_time: Stamp, order: u64, place: Found) {
        let last = Last {
            log_time,
            order,
            place,
        };
        match self.0.get_mut(topic) {
            Some(known) if (known.log_time, known.order) >= (log_time, order) => {}
            Some(known) => *known = last,
            None => drop(self.0.insert(topic.to_owned(), last)),
        }
    }
}

impl Indexed {
    /// Whether the message read at the index's offset is the one that the index describes.
    pub fn is(&self, row: &Row, channels: &[Arc<Channel>]) -> bool {
        row.log_time == self.log_time && channels[row.channel as usize].topic == self.topic
    }
}

/// Messages from different buffers as one batch.
pub(crate) fn batch_of(channels: Arc<[Arc<Channel>]>, messages: Vec<(Bytes, Row)>) -> Batch {
    let (buffers, mut rows): (Vec<Bytes>, Vec<Row>) = messages.into_iter().unzip();
    for (index, row) in rows.iter_mut().enumerate() {
        row.buffer = index as u32;
    }
    Batch::new(channels, buffers, rows)
}
