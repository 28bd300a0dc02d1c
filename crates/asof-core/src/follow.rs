//! Sources that grow, and those who follow them.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::{Batch, Batches, SourceError};

/// Whether more messages may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Growth {
    /// A recording that is complete: everything that it will ever hold is there.
    #[default]
    Finished,
    /// A running robot, or a file that is being written: more may come at its end.
    ///
    /// "Nothing so far" says nothing about later: what is empty now must not be remembered as empty.
    Growing,
}

impl Growth {
    /// Whether more messages may come.
    pub const fn is_growing(self) -> bool {
        matches!(self, Growth::Growing)
    }
}

/// A place in a source that moves on with it; made by [`Source::follow`](crate::Source::follow).
///
/// # What it promises
///
/// - **Everything once.** Each message that matches and is held when it is reached is handed out exactly once: first
///   what the source held when it was followed, then what comes.
/// - **Order.** Up to the first [`CaughtUp`](Followed::CaughtUp), batches are in order as those of
///   [`read`](crate::Source::read): the concatenation is sorted by log time, then by place. After that, a batch is
///   sorted within itself, and batches come in the order in which messages arrived at the source.
/// - **Ties.** Messages with one log time come in the order of their places.
/// - **Late messages.** A message that arrives with a log time before one that was handed out already is not held
///   back and not dropped: it comes in the next batch, whose [`range`](Batch::range) then starts before the end of an
///   earlier one. The store of a robot's recent messages has none: it stamps by receipt, and its log times rise.
/// - **Waiting.** [`next`](Follow::next) waits until its deadline at the latest, and not at all where there is
///   something to hand out. A deadline that has passed asks without waiting.
/// - **What is missed is counted.** A source that keeps only what is recent may let go of messages before a slow
///   follower asks for them. They are counted by topic in [`missed`](Follow::missed).
/// - **An end is an end.** After [`End`](Followed::End) or an error, every further call says `End` again.
pub trait Follow: Send {
    /// What comes next. Waits for it until `deadline` at the latest.
    ///
    /// # Errors
    /// When the source cannot be read any more. It is the last thing that is said, but for [`Followed::End`].
    fn next(&mut self, deadline: Instant) -> Result<Followed, SourceError>;

    /// Messages that came and were gone before they could be handed out, by topic, since this was last asked.
    fn missed(&mut self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

/// What [`Follow::next`] has to say.
#[derive(Debug)]
pub enum Followed {
    /// Messages, never none.
    Batch(Batch),
    /// Everything up to now has been handed out, and nothing new came by the deadline. More may come.
    CaughtUp,
    /// The clock of the source was set back. What was handed out before belongs to another time, and what comes next
    /// starts anew: forget what was derived from it.
    Restarted,
    /// Nothing comes any more.
    End(FollowEnd),
}

/// Why nothing comes any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FollowEnd {
    /// All of it was handed out: the source does not grow, its writer has closed it, or the end of the query's range
    /// has passed.
    Complete,
    /// The source was closed on this side.
    Closed,
    /// The source went away, and does not come back; the reason is a sentence for a person.
    Lost(String),
}

/// Follows what does not grow: hands out all of it, then ends.
///
/// This is what [`Source::follow`](crate::Source::follow) does for finished recordings.
pub struct FollowFinished {
    batches: Option<Batches>,
}

impl FollowFinished {
    /// Hands out these batches, then ends.
    pub fn new(batches: Batches) -> Self {
        FollowFinished {
            batches: Some(batches),
        }
    }
}

impl Follow for FollowFinished {
    fn next(&mut self, _deadline: Instant) -> Result<Followed, SourceError> {
        match self.batches.as_mut().and_then(Iterator::next) {
            Some(Ok(batch)) => Ok(Followed::Batch(batch)),
            Some(Err(error)) => {
                self.batches = None;
                Err(error)
            }
            None => {
                self.batches = None;
                Ok(Followed::End(FollowEnd::Complete))
            }
        }
    }
}
