//! Read heads: where readers are and what is worth keeping for them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use asof_core::{Query, Stamp, TimeRange, Topics};

use crate::coverage::{after, before};
use crate::names::TopicSet;
use crate::reader::Reader;
use crate::shared::Shared;

/// What a reader is for. The cache keeps what the higher classes need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum HeadClass {
    /// Reads everything once: its data is evicted first and never displaces that of other readers.
    Scan,
    /// Fills the cache for later.
    #[default]
    Preload,
    /// Jumps around in time.
    Scrub,
    /// Plays: the unbroken chain of blocks ahead of it is never evicted.
    Playback,
}

impl HeadClass {
    /// All classes, from the least to the most important.
    pub const ALL: [HeadClass; 4] = [
        HeadClass::Scan,
        HeadClass::Preload,
        HeadClass::Scrub,
        HeadClass::Playback,
    ];
}

/// Which way a reader moves through time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// Towards later times.
    #[default]
    Forward,
    /// Towards earlier times.
    Backward,
}

/// Where a head is, and what it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadOptions {
    /// What the reader is for.
    pub class: HeadClass,
    /// Where it is.
    pub position: Stamp,
    /// Which way it goes.
    pub direction: Direction,
    /// How far ahead of a playback head the chain of blocks is protected. All of it by default.
    pub look_ahead: Duration,
}

impl Default for HeadOptions {
    fn default() -> Self {
        HeadOptions {
            class: HeadClass::default(),
            position: Stamp::MIN,
            direction: Direction::Forward,
            look_ahead: Duration::MAX,
        }
    }
}

/// A head as registered in the store.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub id: u64,
    pub topics: TopicSet,
    pub options: HeadOptions,
}

impl Head {
    /// The distance of a block at `range`: the larger it is, the sooner the block may be evicted.
    ///
    /// Blocks that the head has passed count double: they are less likely to be needed again.
    pub fn distance(&self, range: TimeRange) -> u64 {
        let at = self.options.position;
        let (forward, gap) = if range.start > at {
            (true, range.start.since(at) as u64)
        } else if range.end < at {
            (false, at.since(range.end) as u64)
        } else {
            return 0;
        };
        let is_ahead = forward == (self.options.direction == Direction::Forward);
        if is_ahead { gap } else { gap.saturating_mul(2) }
    }

    /// The protected times, given the unbroken stretch around the head.
    pub fn protected(&self, chain: TimeRange) -> TimeRange {
        let HeadOptions {
            class,
            position,
            direction,
            look_ahead,
        } = self.options;
        if class != HeadClass::Playback {
            return TimeRange::EMPTY;
        }
        let look_ahead = i64::try_from(look_ahead.as_nanos()).unwrap_or(i64::MAX);
        let ahead = match direction {
            Direction::Forward => TimeRange::new(position, position.plus_nanos(look_ahead)),
            Direction::Backward => {
                TimeRange::new(position.plus_nanos(look_ahead.saturating_neg()), position)
            }
        };
        chain.intersect(ahead)
    }

    /// The instant between this head and a later one that is equally far from both.
    pub fn watershed(&self, later: &Head) -> Stamp {
        let gap = later.options.position.since(self.options.position);
        let weight = |head: &Head, going: Direction| i64::from(head.options.direction != going) + 1;
        let ours = weight(self, Direction::Forward);
        let theirs = weight(later, Direction::Backward);
        self.options
            .position
            .plus_nanos(gap / (ours + theirs) * theirs)
    }
}

/// A reader's position in a [`BlockCache`](crate::BlockCache), registered until dropped.
///
/// Blocks far from every head are evicted first; [`HeadClass`] has the other rules.
#[derive(Debug)]
pub struct ReadHead {
    shared: Arc<Shared>,
    slot: Arc<HeadSlot>,
}

/// Unregisters the head when its last user is dropped.
#[derive(Debug)]
pub(crate) struct HeadSlot {
    shared: Weak<Shared>,
    pub id: u64,
}

impl Drop for HeadSlot {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.state().heads.retain(|head| head.id != self.id);
        }
    }
}

impl ReadHead {
    pub(crate) fn new(shared: &Arc<Shared>, topics: &Topics, options: HeadOptions) -> Self {
        let topics = shared.resolve(topics).topics;
        let id = shared.state().add_head(topics, options);
        ReadHead {
            shared: Arc::clone(shared),
            slot: Arc::new(HeadSlot {
                shared: Arc::downgrade(shared),
                id,
            }),
        }
    }

    pub(crate) fn slot(&self) -> Arc<HeadSlot> {
        Arc::clone(&self.slot)
    }

    /// Its current options.
    pub fn options(&self) -> HeadOptions {
        let state = self.shared.state();
        let own = state.heads.iter().find(|head| head.id == self.slot.id);
        own.map(|head| head.options.clone()).unwrap_or_default()
    }

    /// Moves it.
    pub fn set_position(&self, position: Stamp) {
        self.change(|head| head.options.position = position);
    }

    /// Turns it.
    pub fn set_direction(&self, direction: Direction) {
        self.change(|head| head.options.direction = direction);
    }

    /// Changes how far ahead blocks are protected.
    pub fn set_look_ahead(&self, time: Duration) {
        self.change(|head| head.options.look_ahead = time);
    }

    /// Changes which topics it wants. Reads nothing and drops nothing.
    pub fn set_topics(&self, topics: &Topics) {
        let topics = self.shared.resolve(topics).topics;
        self.change(|head| head.topics = topics);
    }

    /// Reads on behalf of this head without moving it: move it as messages are used.
    pub fn read_ahead(&self, query: &Query) -> Reader {
        Reader::new(&self.shared, query, self.slot(), false)
    }

    /// Reads and moves this head along.
    pub fn read(&self, query: &Query) -> Reader {
        Reader::new(&self.shared, query, self.slot(), true)
    }

    /// The end of the gapless stretch held in memory for all of these topics, starting at `from`.
    ///
    /// `None` when nothing is held at `from` itself.
    pub fn held_through(&self, topics: &Topics, from: Stamp) -> Option<Stamp> {
        let wanted = self.shared.resolve(topics);
        if !wanted.around.is_empty() {
            return None;
        }
        let state = self.shared.state();
        let mut at = from;
        loop {
            let view = state.view(&wanted.topics, at, Stamp::MAX);
            if !view.missing.is_empty() {
                return (at > from).then(|| before(at)).flatten();
            }
            match after(view.through) {
                Some(next) => at = next,
                None => return Some(Stamp::MAX),
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Head)) {
        let mut state = self.shared.state();
        if let Some(head) = state.heads.iter_mut().find(|head| head.id == self.slot.id) {
            change(head);
        }
    }
}
