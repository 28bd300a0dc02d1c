//! Where messages come from.

use std::sync::Arc;

use crate::check::check_by_reading;
use crate::follow::FollowFinished;
use crate::{
    Batch, FileOrder, FileParts, Follow, Growth, Index, Problem, Query, Stamp, Summary, Topics,
};

/// Anything that holds messages by time: a file, several files, a running robot, a cache over any of them.
///
/// # Why this shape
///
/// *Batches, not messages.* Users feel the cost per message, so a source returns many at
/// once and a reader looks at them in place. A callback or a channel of single messages would cost
/// more than the decompression of their chunk.
///
/// *`&self` everywhere.* A source is opened once and shared: any number of readers, on any threads,
/// each with its own iterator and its own position. A reader that is dropped half way costs nothing
/// further and does not disturb other readers.
///
/// *`'static` iterators and owned batches.* A batch carries the buffers of its payloads, so it can go
/// to another thread or outlive the source. Nothing is copied for that.
///
/// # What a batch promises
///
/// - **Order.** Messages are ordered by `log_time`; ties are ordered by [`order`](crate::MessageRef::order), their
///   position in the source. The order holds within a batch and from one batch to the
///   next: the concatenation of all batches is sorted.
/// - **Size.** A batch is never empty. Its size is natural to the source (for MCAP, about a
///   chunk), so memory is bounded when you hold one batch at a time; each source documents its own bound.
/// - **Ownership.** The batch owns its bytes. A message that is kept keeps its buffer alive:
///   [`Message::detached`](crate::Message::detached) copies it out.
/// - **Damage.** What cannot be read is skipped, counted, and added to
///   [`summary().problems`](Summary::problems); reading goes on after it. An `Err` means that reading
///   cannot go on at all, for example after a disk or network failure; it is the last item.
///
/// # Sources that grow
///
/// A running robot, or a file that is being written, is a source too: [`growth`](Source::growth) returns
/// [`Growth::Growing`]. `read` and `latest_at` answer from what it holds when they are called; a `read` in progress
/// may include what arrives meanwhile. [`follow`](Source::follow) waits for new messages.
///
/// # What only some have
///
/// An [`index`](Source::index), the [`parts`](Source::parts) of a file and its [order](Source::file_order) are asked
/// for: a source without them returns `None`. `dyn Source` has their methods too, with the answers of such a source.
///
/// # Sources around sources
///
/// A source around another one is a [`SourceLayer`](crate::SourceLayer), which forwards what it does not change.
///
/// Any implementation can be checked against this contract: `asof_core::testing` (feature `testing`) is a test
/// suite of these promises.
pub trait Source: Send + Sync {
    /// What it holds, and the problems found so far. Cheap: a shared snapshot, the same one until something changes.
    fn summary(&self) -> Arc<Summary>;

    /// The matching messages, in order, in batches.
    ///
    /// # Errors
    /// When the source cannot be read at all.
    fn read(&self, query: &Query) -> Result<Batches, SourceError>;

    /// For each topic, its last message at or before `at`: what was known as of then.
    ///
    /// The batch has at most one message per topic (the latest by `log_time`, then by `order`), sorted by
    /// time. A topic without a message by then has none in it.
    ///
    /// # Errors
    /// When the source cannot be read at all.
    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError>;

    /// Whether more messages may come. The default is a finished recording.
    fn growth(&self) -> Growth {
        Growth::Finished
    }

    /// The messages that it holds in the range of the query, then new ones as they arrive, until the end of the range
    /// has passed.
    ///
    /// A source that does not grow returns the same as [`read`](Source::read), then ends. See [`Follow`] for the
    /// promises about order, ties and late messages.
    ///
    /// # Errors
    /// When the source cannot be read at all.
    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        Ok(Box::new(FollowFinished::new(self.read(query)?)))
    }

    /// Its index, if it has one: counts and times of messages that are known without reading any.
    fn index(&self) -> Option<&dyn Index> {
        None
    }

    /// What it holds beside messages, if anything: attachments, metadata, records that readers do not see.
    fn parts(&self) -> Option<&dyn FileParts> {
        None
    }

    /// Its messages in the order of its file, if that may be another than the order of time.
    fn file_order(&self) -> Option<&dyn FileOrder> {
        None
    }

    /// Reads everything, and checks all parts against each other as far as the format allows. Returns all problems,
    /// including those found when it was opened.
    ///
    /// # Errors
    /// When the source cannot be read at all, or the callback ends the work.
    fn check(&self, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        check_by_reading(self, progress)
    }

    /// Whether it still is what its summary describes, where that is known from elsewhere.
    ///
    /// # Errors
    /// When it has changed, or is gone.
    fn verify(&self) -> Result<(), SourceError> {
        Ok(())
    }

    /// The cost of reading so far, for formats that count it.
    fn read_stats(&self) -> Option<ReadStats> {
        None
    }
}

/// A progress callback: bytes done, bytes in total. Its error ends the work: [`SourceError::Cancelled`] where that is no longer
/// wanted.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> Result<(), SourceError>;

/// The cost of reading so far, for all readers together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadStats {
    /// Chunks that were read.
    pub chunks: u64,
    /// Of these, chunks that were decompressed.
    pub decompressed_chunks: u64,
    /// Bytes after decompression.
    pub decompressed_bytes: u64,
}

impl std::ops::AddAssign for ReadStats {
    fn add_assign(&mut self, other: Self) {
        self.chunks += other.chunks;
        self.decompressed_chunks += other.decompressed_chunks;
        self.decompressed_bytes += other.decompressed_bytes;
    }
}

/// The answer to a [`Query`]: batches in order.
pub type Batches = Box<dyn Iterator<Item = Result<Batch, SourceError>> + Send>;

/// Why a source could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The system refused a read.
    #[error("cannot read {place} at byte {offset}: {cause}")]
    Io {
        /// The file or address.
        place: String,
        /// Where in it.
        offset: u64,
        /// The system's error.
        #[source]
        cause: std::io::Error,
    },
    /// The place holds something that this source cannot read.
    #[error("{place}: {reason}")]
    Unreadable {
        /// The file or address.
        place: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The place is of a kind that this build has left out.
    #[error("{place}: {reason}")]
    Unsupported {
        /// The address.
        place: String,
        /// What the build lacks, and where to have it.
        reason: String,
        /// The feature of a build that has it.
        feature: &'static str,
    },
    /// The caller stopped it.
    #[error("cancelled")]
    Cancelled,
}

impl SourceError {
    /// The error of a source that has no attachment, or no metadata, of this name.
    pub fn without(place: &str, what: &'static str, name: &str) -> Self {
        SourceError::Unreadable {
            place: place.to_owned(),
            reason: format!("it has no {what} '{name}'"),
        }
    }
}
