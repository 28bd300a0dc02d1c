//! What the index of a file says about its messages.

use std::sync::Arc;

use crate::{Channel, Source, SourceError, Stamp, TimeRange};

/// The index of a file: counts, times and places of messages, without reading any; see [`Source::index`].
pub trait Index: Send + Sync {
    /// Message counts per channel and time span, of the portions that overlap a range.
    ///
    /// A portion is no longer than one part of the source, or shorter than `grain` nanoseconds; it may reach beyond
    /// the range. `None` where messages must be read to count them.
    ///
    /// # Errors
    /// When the source cannot be read at all.
    fn outline(&self, range: TimeRange, grain: u64) -> Result<Option<Vec<Portion>>, SourceError>;

    /// The log times of a topic's messages in a range, sorted: nothing is decompressed. `None` if the messages must be
    /// read: without indexes, if the indexes do not add up to the summary's count, in a damaged file, on a network
    /// (where each index is a request), and if there are too many times to hold in memory.
    ///
    /// # Errors
    /// When the source cannot be read at all.
    fn log_times(&self, topic: &str, range: TimeRange) -> Result<Option<Vec<Stamp>>, SourceError>;

    /// About how many bytes of payload each channel has, from the indexes of a few parts of the file, or from their messages where
    /// the indexes do not tell. Channels that are in none of these parts are left out: all of them on a network, where each part is
    /// a request.
    ///
    /// # Errors
    /// When the source cannot be read at all.
    fn payload_estimates(&self) -> Result<Vec<(Arc<Channel>, u64)>, SourceError> {
        Ok(Vec::new())
    }

    /// The parts of the file that hold messages, in file order. Empty for a format without such parts (db3).
    fn sections(&self) -> Vec<SectionEntry>;
}

/// A count of messages of one channel in a time span: see [`Index::outline`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Portion {
    /// The channel of the messages.
    pub channel: Arc<Channel>,
    /// All of the messages are within this range.
    pub range: TimeRange,
    /// The number of messages.
    pub messages: u64,
}

/// A part of a file that is read as one: a chunk, or a run of messages outside of chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionEntry {
    /// Byte offset in the file.
    pub offset: u64,
    /// Its length in the file.
    pub length: u64,
    /// Its declared length once decompressed.
    pub uncompressed: u64,
    /// Its compression; empty for none.
    pub compression: String,
    /// All messages in it are within this range.
    pub range: TimeRange,
    /// The channels with messages in it; `None` if only reading could list them.
    pub channels: Option<Vec<Arc<Channel>>>,
}

/// The same questions for any source: one without an index answers that its messages must be read.
impl dyn Source + '_ {
    /// See [`Index::outline`].
    ///
    /// # Errors
    /// When the source cannot be read at all.
    pub fn outline(
        &self,
        range: TimeRange,
        grain: u64,
    ) -> Result<Option<Vec<Portion>>, SourceError> {
        let index = self.index();
        index.map_or(Ok(None), |index| index.outline(range, grain))
    }

    /// See [`Index::log_times`].
    ///
    /// # Errors
    /// When the source cannot be read at all.
    pub fn log_times(
        &self,
        topic: &str,
        range: TimeRange,
    ) -> Result<Option<Vec<Stamp>>, SourceError> {
        let index = self.index();
        index.map_or(Ok(None), |index| index.log_times(topic, range))
    }

    /// See [`Index::payload_estimates`].
    ///
    /// # Errors
    /// When the source cannot be read at all.
    pub fn payload_estimates(&self) -> Result<Vec<(Arc<Channel>, u64)>, SourceError> {
        let index = self.index();
        index.map_or(Ok(Vec::new()), Index::payload_estimates)
    }

    /// See [`Index::sections`].
    pub fn sections(&self) -> Vec<SectionEntry> {
        self.index().map(Index::sections).unwrap_or_default()
    }
}
