//! Joining topics by time.
//!
//! A synchronizer takes messages of several topics one by one and emits the sets that belong together. All of them
//! work on any stream of (topic, stamp, value), live or recorded. None uses a clock, so the same arrival order
//! always gives the same sets. Values can be of any type; usually they are handles.
//!
//! ```
//! use asof_window::sync::{SyncEvent, ExactTime, Synchronizer};
//!
//! let mut stereo = ExactTime::new(2, 10);
//! let mut pairs = Vec::new();
//! let mut emit = |event| {
//!     if let SyncEvent::Matched(set) = event {
//!         pairs.push((set[0].value, set[1].value));
//!     }
//! };
//! stereo.add(0, 1.into(), "left 1", &mut emit);
//! stereo.add(1, 2.into(), "right 2", &mut emit);
//! stereo.add(0, 2.into(), "left 2", &mut emit);
//! assert_eq!(pairs, [("left 2", "right 2")]);
//! ```

mod aligner;
mod approximate;
mod chain;
mod epsilon;
mod exact;
mod latest;
mod live;
mod sequencer;
mod shared;
mod shifted;
mod sorted;
mod synchronize;
mod tuple;

use asof_core::Stamp;

pub use aligner::{AlignerEvent, InputAligner, InputStats};
pub use approximate::ApproximateTime;
pub use asof_align::{
    Align, AlignStats, AlignedRow, Cursor, Match, Missing, Pick, Rule, Stamped, Track,
};
pub use chain::{Chain, Delta, Filter, Keep, Map, PassThrough, Throttle};
pub use epsilon::ApproximateEpsilonTime;
pub use exact::ExactTime;
pub use latest::{LatestTime, RateOptions};
pub use live::LiveCursor;
pub use sequencer::TimeSequencer;
pub use shared::{Overflow, SharedStats, SharedSynchronizer};
pub use shifted::Shifted;
pub use sorted::Sorted;
pub use synchronize::{
    PartialWindows, SyncPolicy, Synchronized, WindowLike, Windows, synchronize, synchronize_partial,
};
pub use tuple::{Of2, Of3, Of4, Of5, Of6, Of7, Of8, Of9, OneOf, Typed};

/// An event of a synchronizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncEvent<V> {
    /// These belong together: one message of each topic, in the order of the topics.
    Matched(Vec<Stamped<V>>),
    /// These belong together, and no message of the other topics comes in time: only from synchronizers with optional
    /// topics or a longest wait.
    Partial(Vec<Option<Stamped<V>>>),
    /// This message will not be in any set.
    Dropped {
        /// Its topic.
        topic: usize,
        /// The message.
        message: Stamped<V>,
        /// Why it was dropped.
        reason: DropReason,
    },
}

impl<V> SyncEvent<V> {
    /// The messages of a set by topic, complete or not; `None` for a dropped message.
    pub fn into_set(self) -> Option<Vec<Option<Stamped<V>>>> {
        match self {
            SyncEvent::Matched(set) => Some(set.into_iter().map(Some).collect()),
            SyncEvent::Partial(set) => Some(set),
            SyncEvent::Dropped { .. } => None,
        }
    }
}

/// Why a message is not in any set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// Its topic has more messages waiting than the queue holds.
    QueueFull,
    /// A later message of its topic made a better set.
    BetterMatch,
    /// Together with the messages of the other topics it spans more than the maximum interval.
    IntervalTooLong,
    /// A neighbour on the deciding topic was dropped before, so no set could be proven best.
    AfterLoss,
    /// A set with a later stamp is complete, so this one never will be.
    Overtaken,
    /// Another message with the same stamp replaced it.
    Replaced,
    /// It came after messages with later stamps were passed on.
    TooLate,
    /// The topic does not exist.
    UnknownTopic,
}

/// Takes messages of several topics and emits the sets that belong together.
pub trait Synchronizer<V> {
    /// The number of topics it joins.
    fn topics(&self) -> usize;

    /// Adds a message of topic `topic`, counted from zero, and calls `emit` with the resulting events.
    fn add(&mut self, topic: usize, stamp: Stamp, value: V, emit: &mut dyn FnMut(SyncEvent<V>));

    /// Advances time to `now`, by the clock of the stamps: waits end although nothing arrives. Without waits it does nothing.
    fn advance(&mut self, _now: Stamp, _emit: &mut dyn FnMut(SyncEvent<V>)) {}

    /// Like [`Synchronizer::add`] for callers that hold a lock: appends messages that are replaced without an event to
    /// `gone`, for the caller to drop.
    fn add_with_gone(
        &mut self,
        topic: usize,
        stamp: Stamp,
        value: V,
        emit: &mut dyn FnMut(SyncEvent<V>),
        _gone: &mut Vec<V>,
    ) {
        self.add(topic, stamp, value, emit);
    }

    /// The same for [`Synchronizer::advance`].
    fn advance_with_gone(
        &mut self,
        now: Stamp,
        emit: &mut dyn FnMut(SyncEvent<V>),
        _gone: &mut Vec<V>,
    ) {
        self.advance(now, emit);
    }

    /// Appends all waiting messages to `gone`, for the caller to drop: the clock was set back.
    fn take_waiting(&mut self, gone: &mut Vec<V>);

    /// Drops all waiting messages.
    fn clear(&mut self) {
        self.take_waiting(&mut Vec::new());
    }

    /// Like [`Synchronizer::add`] for callers that need only the sets: calls `found` with every set and appends
    /// messages in no set to `gone`, for the caller to drop.
    fn add_for_sets(
        &mut self,
        topic: usize,
        stamp: Stamp,
        value: V,
        found: &mut dyn FnMut(Vec<Stamped<V>>),
        gone: &mut Vec<V>,
    ) {
        let mut unmatched = Vec::new();
        let mut emit = |event| match event {
            SyncEvent::Matched(set) => found(set),
            SyncEvent::Partial(set) => {
                unmatched.extend(set.into_iter().flatten().map(|message| message.value));
            }
            SyncEvent::Dropped { message, .. } => unmatched.push(message.value),
        };
        self.add_with_gone(topic, stamp, value, &mut emit, gone);
        gone.append(&mut unmatched);
    }
}

fn unknown<V>(topic: usize, stamp: Stamp, value: V) -> SyncEvent<V> {
    SyncEvent::Dropped {
        topic,
        message: Stamped::new(stamp, value),
        reason: DropReason::UnknownTopic,
    }
}
