//! Joining topics by time.
//!
//! A synchronizer takes messages of several topics one by one and says which belong together. All of them work on
//! any stream of (topic, stamp, value), live or recorded; none looks at a clock, so the same arrival order gives
//! the same answer every time. Values can be anything that moves: handles, as a rule.
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

mod align;
mod aligner;
mod approximate;
mod chain;
mod epsilon;
mod exact;
mod latest;
mod sequencer;
mod shared;
mod synchronize;
mod tuple;

use asof_core::Stamp;

pub use align::{
    Align, AlignStats, AlignedRow, Cursor, LiveCursor, Match, Missing, Pick, Rule, Track,
};
pub use aligner::{AlignerEvent, InputAligner, InputStats};
pub use approximate::ApproximateTime;
pub use chain::{Chain, Delta, Filter, Keep, Map, PassThrough, Throttle};
pub use epsilon::ApproximateEpsilonTime;
pub use exact::ExactTime;
pub use latest::{LatestTime, RateOptions};
pub use sequencer::TimeSequencer;
pub use shared::{Overflow, SharedStats, SharedSynchronizer};
pub use synchronize::{SyncPolicy, Synchronized, WindowLike, Windows, synchronize};
pub use tuple::{Of2, Of3, Of4, Of5, Of6, Of7, Of8, Of9, OneOf, Typed};

/// A value and when it is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamped<V> {
    /// When it is from.
    pub stamp: Stamp,
    /// The value.
    pub value: V,
}

impl<V> Stamped<V> {
    /// A value with its stamp.
    pub fn new(stamp: Stamp, value: V) -> Self {
        Stamped { stamp, value }
    }
}

/// What a synchronizer has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncEvent<V> {
    /// These belong together: one message of each topic, in the order of the topics.
    Matched(Vec<Stamped<V>>),
    /// This one is in no set and never will be.
    Dropped {
        /// Its topic.
        topic: usize,
        /// The message.
        message: Stamped<V>,
        /// Why it was let go.
        reason: DropReason,
    },
}

/// Why a message ended up in no set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// Its topic has more messages waiting than the queue holds.
    QueueFull,
    /// A later message of its topic made a better set.
    BetterMatch,
    /// Together with the messages of the other topics it spans more than the maximum interval.
    IntervalTooLong,
    /// A neighbour on the topic that would decide was lost before, so no set could be proven best.
    AfterLoss,
    /// A set with a later stamp is complete, so this one never will be.
    Overtaken,
    /// Another message with the same stamp took its place.
    Replaced,
    /// It came after messages with later stamps were passed on.
    TooLate,
    /// There is no such topic.
    UnknownTopic,
}

/// Takes messages of several topics, and says which belong together.
pub trait Synchronizer<V> {
    /// How many topics it joins.
    fn topics(&self) -> usize;

    /// Takes in a message of topic `topic`, counted from zero, and calls `emit` with whatever follows from it.
    fn add(&mut self, topic: usize, stamp: Stamp, value: V, emit: &mut dyn FnMut(SyncEvent<V>));

    /// The same for one who wants the sets and nothing else: calls `found` with every set, and puts whatever is in
    /// none behind `gone`, to be dropped where it suits the caller.
    fn add_for_sets(
        &mut self,
        topic: usize,
        stamp: Stamp,
        value: V,
        found: &mut dyn FnMut(Vec<Stamped<V>>),
        gone: &mut Vec<V>,
    ) {
        self.add(topic, stamp, value, &mut |event| match event {
            SyncEvent::Matched(set) => found(set),
            SyncEvent::Dropped { message, .. } => gone.push(message.value),
        });
    }
}

fn unknown<V>(topic: usize, stamp: Stamp, value: V) -> SyncEvent<V> {
    SyncEvent::Dropped {
        topic,
        message: Stamped::new(stamp, value),
        reason: DropReason::UnknownTopic,
    }
}
