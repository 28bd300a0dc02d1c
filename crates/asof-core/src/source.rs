//! Where messages come from.

use std::sync::Arc;

use crate::follow::FollowFinished;
use crate::{Batch, Channel, Follow, Growth, Query, Stamp, Summary, TimeRange, Topics};

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
/// Any implementation can be checked against this contract: `asof_core::testing` (feature `testing`) is a test
/// suite of these promises.
pub trait Source: Send + Sync {
    /// What it holds, and the problems found so far. Cheap: a shared snapshot.
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

    /// Message counts per channel and time span, from indexes alone, without reading any message.
    ///
    /// A portion is no longer than one part of the source, or shorter than `grain` nanoseconds. `None`, the default,
    /// for a source without such an index: its messages must be read to count them.
    ///
    /// # Errors
    /// When the source cannot be read at all.
    fn outline(&self, grain: u64) -> Result<Option<Vec<Portion>>, SourceError> {
        let _ = grain;
        Ok(None)
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
}

/// A count of messages of one channel in a time span: see [`Source::outline`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Portion {
    /// The channel of the messages.
    pub channel: Arc<Channel>,
    /// All of the messages are within this range.
    pub range: TimeRange,
    /// The number of messages.
    pub messages: u64,
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
    /// The caller stopped it.
    #[error("cancelled")]
    Cancelled,
}

/// A pointer to a source is a source.
macro_rules! forward {
    ($pointer:ident) => {
        impl<S: Source + ?Sized> Source for $pointer<S> {
            fn summary(&self) -> Arc<Summary> {
                (**self).summary()
            }

            fn read(&self, query: &Query) -> Result<Batches, SourceError> {
                (**self).read(query)
            }

            fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
                (**self).latest_at(topics, at)
            }

            fn growth(&self) -> Growth {
                (**self).growth()
            }

            fn outline(&self, grain: u64) -> Result<Option<Vec<Portion>>, SourceError> {
                (**self).outline(grain)
            }

            fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
                (**self).follow(query)
            }
        }
    };
}

forward!(Arc);
forward!(Box);
