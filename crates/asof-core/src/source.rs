//! Where messages come from.

use std::sync::Arc;

use crate::follow::FollowFinished;
use crate::{Batch, Channel, Follow, Growth, Query, Stamp, Summary, TimeRange, Topics};

/// Anything that holds messages by time: a file, several files, a running robot, a cache over any of them.
///
/// # Why this shape
///
/// *Batches, not messages.* What users feel is the cost per message, so a source hands out many at
/// once and a reader looks at them in place. A callback or a channel of single messages would cost
/// more than the decompression of their chunk.
///
/// *`&self` everywhere.* A source is opened once and shared: any number of readers, on any threads,
/// each with its own iterator and its own place. A reader that is dropped half way costs nothing
/// further; readers that it raced with do not notice.
///
/// *`'static` iterators and owned batches.* A batch carries the buffers of its payloads, so it can go
/// to another thread or outlive the source. Nothing is copied to make that so.
///
/// # What a batch promises
///
/// - **Order.** Messages are ordered by `log_time`, and by [`order`](crate::MessageRef::order), their
///   place in the source, where that is equal. The order holds within a batch and from one batch to the
///   next: the concatenation of all batches is sorted.
/// - **Size.** A batch is never empty. It is as large as the source finds natural (for MCAP, about a
///   chunk), so one batch at a time is bounded memory; a source says what its own bound is.
/// - **Ownership.** The batch owns its bytes. Keeping one message of it keeps its buffer:
///   [`Message::detached`](crate::Message::detached) cuts that tie.
/// - **Damage.** What cannot be read is left out, counted, and added to
///   [`summary().problems`](Summary::problems); reading goes on after it. An `Err` means that reading
///   cannot go on at all, such as a disk or a network that failed; it is the last item.
///
/// # Sources that grow
///
/// A running robot, or a file that is being written, is a source too: [`growth`](Source::growth) says that more may
/// come. `read` and `backfill` answer from what it holds when they are asked; a `read` that is under way may
/// include what comes meanwhile. [`follow`](Source::follow) goes on with it.
///
/// Every implementation can be held against this contract: the functions of `asof_core::testing` (feature
/// `testing`) are the promises as a test suite.
pub trait Source: Send + Sync {
    /// What it holds, and the problems met so far. Cheap: a snapshot, shared.
    fn summary(&self) -> Arc<Summary>;

    /// The messages that match, in order, in batches.
    ///
    /// # Errors
    /// When the source cannot be read at all.
    fn read(&self, query: &Query) -> Result<Batches, SourceError>;

    /// For each topic, its last message at or before `at`: what was known as of then.
    ///
    /// The batch has at most one message per topic (the latest by `log_time`, then by place), in order
    /// of time. Topics without a message by then have none in it.
    ///
    /// # Errors
    /// When the source cannot be read at all.
    fn backfill(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError>;

    /// Whether more messages may come. A finished recording, the default, says that it does not grow.
    fn growth(&self) -> Growth {
        Growth::Finished
    }

    /// How many messages of each channel lie where, by what indexes say, without reading any message.
    ///
    /// A portion is as short as the source's own parts, or shorter than `grain` nanoseconds. `None`, the default, for a
    /// source without such an index: then only reading tells.
    ///
    /// # Errors
    /// When the source cannot be read at all.
    fn outline(&self, grain: u64) -> Result<Option<Vec<Portion>>, SourceError> {
        let _ = grain;
        Ok(None)
    }

    /// What it holds in the range of the query, then what comes, until the end of the range has passed.
    ///
    /// A source that does not grow hands out what [`read`](Source::read) does, and ends. [`Follow`] says what is
    /// promised about order, ties and late messages.
    ///
    /// # Errors
    /// When the source cannot be read at all.
    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        Ok(Box::new(FollowFinished::new(self.read(query)?)))
    }
}

/// Some messages of a channel, counted: see [`Source::outline`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Portion {
    /// Whose messages they are.
    pub channel: Arc<Channel>,
    /// None of them is earlier or later than this.
    pub range: TimeRange,
    /// How many.
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
        /// What the system said.
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
}

/// A source behind a pointer is a source.
macro_rules! forward {
    ($pointer:ident) => {
        impl<S: Source + ?Sized> Source for $pointer<S> {
            fn summary(&self) -> Arc<Summary> {
                (**self).summary()
            }

            fn read(&self, query: &Query) -> Result<Batches, SourceError> {
                (**self).read(query)
            }

            fn backfill(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
                (**self).backfill(topics, at)
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
