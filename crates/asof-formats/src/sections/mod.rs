//! Messages in log-time order from a file's sections: prefetched on threads, and merged.
//!
//! Every chunked format has the same shape: parts that hold messages, each with a range of times and a way to load it.
//! A format implements [`Sections`]; the order of reading, the threads and the merging are here.

mod channels;
mod estimate;
mod latest_at;
mod prefetch;
mod read;
mod tally;

use std::sync::Arc;

use asof_core::{Batch, Batches, Channel, Query, Row, SourceError, Stamp, TimeRange, Topics};
use bytes::Bytes;

use crate::buffers::BufferPool;
pub(crate) use channels::{ChannelList, ChannelTable};
pub(crate) use estimate::payload_estimates;
pub(crate) use latest_at::{LastMessages, batch_of};
pub(crate) use prefetch::Prefetch;
pub(crate) use read::deepest_overlap;
use read::{InFileOrder, Reader};
pub(crate) use tally::Tally;

/// A file as sections, by number in file order.
pub(crate) trait Sections: Send + Sync {
    /// The file's name in messages.
    fn name(&self) -> &str;

    /// Whether loading a section is no request to a network.
    fn is_local(&self) -> bool {
        true
    }

    /// Threads that load sections, including the reader's.
    fn threads(&self) -> usize;

    /// How many sections may be loaded before the reader asks for them.
    fn sections_ahead(&self) -> usize {
        usually_ahead(self.threads())
    }

    /// No message of the section is earlier or later than this.
    fn range_of(&self, section: usize) -> TimeRange;

    /// The memory that the section is expected to take, whatever it declares.
    fn expected_bytes(&self, section: usize) -> u64;

    /// Whether the section takes its bytes from the reserve: it is loaded when somebody waits for it, so that nobody waits
    /// for room that sections loaded ahead hold.
    fn is_unlikely(&self, _section: usize) -> bool {
        false
    }

    /// The number of sections.
    fn section_count(&self) -> usize;

    /// Whether a section may hold anything that is wanted.
    fn may_hold(&self, section: usize, wanted: &SectionQuery) -> bool;

    /// The sections that may hold what is wanted.
    fn needed(&self, wanted: &SectionQuery) -> Vec<usize> {
        (0..self.section_count())
            .filter(|&section| self.may_hold(section, wanted))
            .collect()
    }

    /// The wanted messages of a section. What cannot be read is reported and skipped.
    fn load(&self, section: usize, wanted: &SectionQuery) -> Result<Loaded, SourceError>;

    /// Loads the buffers of [`load`](Sections::load) for the same query again, each at least up to `end`.
    fn reload(
        &self,
        section: usize,
        wanted: &SectionQuery,
        _end: u64,
    ) -> Result<Vec<Bytes>, SourceError> {
        self.load(section, wanted).map(|loaded| loaded.buffers)
    }

    /// The pool that the sections' buffers come from and return to.
    fn buffers(&self) -> Option<&Arc<BufferPool>> {
        None
    }

    /// The channels found so far. The list only grows.
    fn channels(&self) -> Arc<[Arc<Channel>]>;
}

/// How many sections may be loaded before a reader asks for them, where each takes memory of its own.
pub(crate) fn usually_ahead(threads: usize) -> usize {
    threads + 2
}

/// The messages that match, in order of time.
pub(crate) fn read<S: Sections + 'static>(file: &Arc<S>, query: &Query) -> Batches {
    let (file, wanted, plan) = planned(file, query);
    Box::new(Reader::new(&file, wanted, plan))
}

/// The messages that match, section after section.
pub(crate) fn read_in_file_order<S: Sections + 'static>(file: &Arc<S>, query: &Query) -> Batches {
    let (file, wanted, plan) = planned(file, query);
    Box::new(InFileOrder::new(&file, wanted, plan))
}

/// About how many bytes [`read`] holds at once, where sections overlap most.
pub(crate) fn bytes_held_by_order<S: Sections + 'static>(file: &Arc<S>, query: &Query) -> u64 {
    let (file, _, plan) = planned(file, query);
    deepest_overlap(
        plan.into_iter()
            .map(|section| (file.range_of(section), file.expected_bytes(section))),
    )
}

/// The last message of each topic at `at` or before it, for formats whose sections have no index of their own.
pub(crate) fn latest_at(
    file: &dyn Sections,
    topics: &Topics,
    at: Stamp,
) -> Result<Batch, SourceError> {
    latest_at::latest_at(file, topics, at)
}

fn planned<S: Sections + 'static>(
    file: &Arc<S>,
    query: &Query,
) -> (Arc<dyn Sections>, SectionQuery, Vec<usize>) {
    let wanted = SectionQuery::new(query.topics.clone(), query.range, &file.channels());
    let plan = file.needed(&wanted);
    (Arc::<S>::clone(file), wanted, plan)
}

/// The messages of one section that a query asks for, in order.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// One in most formats; of a db3, its pages and the payloads assembled from several pages.
    pub buffers: Vec<Bytes>,
    /// In order of time, then position; `buffer` is an index into `buffers`.
    pub rows: Vec<Row>,
}

impl Loaded {
    /// Rows whose payloads are all in one buffer.
    pub fn of(buffer: Bytes, rows: Vec<Row>) -> Self {
        Loaded {
            buffers: vec![buffer],
            rows,
        }
    }
}

/// Which messages of a section are wanted.
#[derive(Debug)]
pub(crate) struct SectionQuery {
    pub topics: Topics,
    pub range: TimeRange,
    /// Whether each channel is on one of the topics; for channels found later, the topic decides.
    mask: Vec<bool>,
}

impl SectionQuery {
    pub fn new(topics: Topics, range: TimeRange, channels: &[Arc<Channel>]) -> Self {
        let mask = channels
            .iter()
            .map(|channel| topics.contains(&channel.topic))
            .collect();
        SectionQuery {
            topics,
            range,
            mask,
        }
    }

    /// Whether messages of this channel are wanted.
    #[inline]
    pub fn wants(&self, channel: u32, channels: &[Arc<Channel>]) -> bool {
        match self.mask.get(channel as usize) {
            Some(&is_wanted) => is_wanted,
            None => channels
                .get(channel as usize)
                .is_some_and(|channel| self.topics.contains(&channel.topic)),
        }
    }

    /// Whether every channel that was known is wanted.
    pub fn is_everything(&self) -> bool {
        self.mask.iter().all(|&is_wanted| is_wanted)
    }
}

/// Bits of [`Row::order`] that count bytes within a section; those above count sections.
pub(crate) const PLACE_BITS: u32 = 36;

/// The position of a message in its file: sections in file order, then bytes within the section.
pub(crate) fn order_of(section: usize, place: u64) -> u64 {
    (section as u64) << PLACE_BITS | place.min((1 << PLACE_BITS) - 1)
}
