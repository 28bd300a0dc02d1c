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

/// Remembers how a follower ended, so that its end is an end: what implements [`Follow`] says it once.
///
/// After an error, which is told once, it says that the source was [lost](FollowEnd::Lost).
#[derive(Debug)]
pub struct FollowFused<F> {
    follow: F,
    end: Option<FollowEnd>,
}

impl<F: Follow> FollowFused<F> {
    /// Follows until the first end or error.
    pub const fn new(follow: F) -> Self {
        FollowFused { follow, end: None }
    }
}

impl<F: Follow> Follow for FollowFused<F> {
    fn next(&mut self, deadline: Instant) -> Result<Followed, SourceError> {
        if let Some(end) = &self.end {
            return Ok(Followed::End(end.clone()));
        }
        let next = self.follow.next(deadline);
        match &next {
            Ok(Followed::End(end)) => self.end = Some(end.clone()),
            Err(error) => self.end = Some(FollowEnd::Lost(error.to_string())),
            Ok(_) => {}
        }
        next
    }

    fn missed(&mut self) -> BTreeMap<String, u64> {
        self.follow.missed()
    }
}

/// Follows what does not grow: hands out all of it, then ends.
///
/// This is what [`Source::follow`](crate::Source::follow) does for finished recordings.
pub struct FollowFinished(FollowFused<Rest>);

/// What is still to be handed out.
struct Rest(Batches);

impl FollowFinished {
    /// Hands out these batches, then ends.
    pub fn new(batches: Batches) -> Self {
        FollowFinished(FollowFused::new(Rest(batches)))
    }
}

impl Follow for FollowFinished {
    fn next(&mut self, deadline: Instant) -> Result<Followed, SourceError> {
        self.0.next(deadline)
    }
}

impl Follow for Rest {
    fn next(&mut self, _deadline: Instant) -> Result<Followed, SourceError> {
        match self.0.next() {
            Some(batch) => batch.map(Followed::Batch),
            None => Ok(Followed::End(FollowEnd::Complete)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing() -> Batches {
        let broken = || SourceError::Unreadable {
            place: "run.mcap".to_owned(),
            reason: "the disk is gone".to_owned(),
        };
        // An iterator that would go on after its error.
        Box::new(std::iter::repeat_with(move || Err(broken())))
    }

    #[test]
    fn after_an_error_it_says_for_ever_that_the_source_is_lost() {
        let mut follow = FollowFinished::new(failing());
        assert!(follow.next(Instant::now()).is_err());
        for _ in 0..3 {
            match follow.next(Instant::now()) {
                Ok(Followed::End(FollowEnd::Lost(reason))) => {
                    assert!(reason.contains("the disk is gone"), "{reason}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn an_end_stays_the_same_end() {
        /// Would go on after its end.
        struct Confused(u32);
        impl Follow for Confused {
            fn next(&mut self, _: Instant) -> Result<Followed, SourceError> {
                self.0 += 1;
                Ok(match self.0 {
                    1 => Followed::CaughtUp,
                    2 => Followed::End(FollowEnd::Closed),
                    _ => Followed::Restarted,
                })
            }
        }
        let mut follow = FollowFused::new(Confused(0));
        assert!(matches!(
            follow.next(Instant::now()),
            Ok(Followed::CaughtUp)
        ));
        for _ in 0..3 {
            let next = follow.next(Instant::now());
            assert!(
                matches!(next, Ok(Followed::End(FollowEnd::Closed))),
                "{next:?}"
            );
        }
    }
}
