//! Sources that grow, and followers of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::{Batch, Batches, Query, Source, SourceError};

/// Whether more messages may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Growth {
    /// A complete recording: no more messages will come.
    #[default]
    Finished,
    /// A running robot, or a file that is being written: more messages may come.
    ///
    /// An empty answer is only true for now and must not be cached.
    Growing,
}

impl Growth {
    /// Whether more messages may come.
    pub const fn is_growing(self) -> bool {
        matches!(self, Growth::Growing)
    }
}

/// A cursor in a source that grows; made by [`Source::follow`](crate::Source::follow).
///
/// # What it promises
///
/// - **Exactly once.** Each matching message that the source still holds when the cursor reaches it is returned
///   exactly once: first what the source held at the start, then what arrives.
/// - **Order.** Up to the first [`CaughtUp`](Followed::CaughtUp), batches are ordered like those of
///   [`read`](crate::Source::read): the concatenation is sorted by log time, then by `order`. After that, a batch is
///   sorted within itself, and batches come in the order in which messages arrived at the source.
/// - **Ties.** Messages with equal log times are sorted by `order`.
/// - **Late messages.** A message that arrives with a log time before one that was already returned is neither
///   delayed nor dropped: it comes in the next batch, whose [`range`](Batch::range) then starts before the end of an
///   earlier one. The store of a robot's recent messages has none: it stamps by receipt, and its log times rise.
/// - **Waiting.** [`next`](Follow::next) waits until its deadline at the latest, and returns at once when there is
///   something to return. With a deadline in the past it polls.
/// - **Missed messages are counted.** A source that keeps only recent messages may evict some before a slow
///   follower reaches them. They are counted by topic in [`missed`](Follow::missed).
/// - **The end is final.** After [`End`](Followed::End) or an error, every further call returns `End`.
pub trait Follow: Send {
    /// The next event. Waits for it until `deadline` at the latest.
    ///
    /// # Errors
    /// When the source can no longer be read. Every later call returns [`Followed::End`].
    fn next(&mut self, deadline: Instant) -> Result<Followed, SourceError>;

    /// Messages that were evicted before they could be returned, by topic, since the last call.
    fn missed(&mut self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

/// One event of [`Follow::next`].
#[derive(Debug)]
pub enum Followed {
    /// Messages, at least one.
    Batch(Batch),
    /// Everything up to now has been returned, and nothing new came by the deadline. More may come.
    CaughtUp,
    /// The clock of the source was set back. What comes next belongs to a new timeline: discard state derived from
    /// earlier messages.
    Restarted,
    /// Nothing more will come.
    End(FollowEnd),
}

/// Why nothing more will come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FollowEnd {
    /// Everything was returned: the source does not grow, its writer has closed it, or the end of the query's range
    /// has passed.
    Complete,
    /// The source was closed on this side.
    Closed,
    /// The source went away and does not come back; the reason is a sentence for the user.
    Lost(String),
}

/// Makes the end of a follower final: after the first end or error, the inner follower is not called again.
///
/// An error is returned once; after it, calls return [`FollowEnd::Lost`].
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

/// Follows a source that does not grow: returns all its messages, then ends.
///
/// This is what [`Source::follow`](crate::Source::follow) does for finished recordings.
pub struct FollowFinished(FollowFused<Rest>);

/// The batches still to be returned.
struct Rest(Batches);

impl FollowFinished {
    /// Returns these batches, then ends.
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

/// The messages of a query, from front to back: those that a source holds, or with `follow` also those that arrive until it
/// ends, for which the iterator waits. Both are the same for a source that does not grow.
///
/// Where its clock was set back is not visible: what comes after that follows.
///
/// # Errors
/// When the source cannot be read at all.
pub fn read_through(
    source: &dyn Source,
    query: &Query,
    follow: bool,
) -> Result<Batches, SourceError> {
    if !follow {
        return source.read(query);
    }
    let mut follow = source.follow(query)?;
    Ok(Box::new(std::iter::from_fn(move || {
        loop {
            match follow.next(Instant::now() + POLL_INTERVAL) {
                Ok(Followed::Batch(batch)) => return Some(Ok(batch)),
                Ok(Followed::CaughtUp | Followed::Restarted) => {}
                Ok(Followed::End(_)) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    })))
}

/// How long one call waits: a deadline is a moment, and the end is not known.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

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
