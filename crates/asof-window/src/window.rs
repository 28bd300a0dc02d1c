//! The window: insertion and eviction.

// The compiler would make calls of the steps of an insertion, which together take as long as the rest of it.
#![allow(clippy::inline_always)]

use std::fmt;
use std::sync::Arc;

use asof_core::Stamp;

use crate::health::Health;
use crate::lock::{Guard, Lock};
use crate::observe::{Callbacks, Connection, contained};
use crate::runs::{Runs, WeightedMessage};
use crate::wait::Waiters;
use crate::{Bounds, Duplicates, Entry, StampOptions};

/// The newest part of a stream of messages, ordered by stamp.
///
/// A `Window` is a handle: clones share the same messages, and any number of threads may insert and query at the same
/// time. The lock inside is held for a search and a handle, never while a payload is made, copied or dropped, and never
/// while a callback runs.
///
/// - Bounded by count, age and bytes ([`Bounds`]); the smallest stamp is dropped first, whatever the order of arrival.
///   A message that would have to be dropped at once is refused. Both are counted ([`WindowStats`]).
/// - One message with a stamp in the far future does no harm: it is dropped and counted as soon as the stream continues
///   where it was ([`StampOptions`]).
/// - Messages with equal stamps are all kept, in order of arrival, unless [`Window::set_duplicates`] says otherwise.
/// - Queries return handles ([`Entry`]) with their stamps. A window of images never copies an image.
///
/// ```
/// use asof_window::{Bounds, Window};
///
/// let imu = Window::new(Bounds::count(2));
/// imu.insert(10.into(), "first");
/// imu.insert(20.into(), "second");
/// imu.insert(30.into(), "third");
/// assert_eq!(imu.oldest().as_deref(), Some(&"second"));
/// assert_eq!(imu.before(25.into()).as_deref(), Some(&"second"));
/// ```
pub struct Window<T> {
    pub(crate) shared: Arc<Shared<T>>,
}

pub(crate) struct Shared<T> {
    pub(crate) state: Lock<State<T>>,
    weigh: Weigh<T>,
}

pub(crate) struct State<T> {
    pub(crate) runs: Runs<T>,
    bounds: Bounds,
    /// Whether only its age was given.
    is_age_alone: bool,
    bytes: u64,
    counters: WindowStats,
    health: Health,
    duplicates: Duplicates,
    pub(crate) waiters: Waiters,
    callbacks: Callbacks<T>,
    pub(crate) is_closed: bool,
}

enum Weigh<T> {
    Each(u64),
    By(Box<dyn Fn(&T) -> u64 + Send + Sync>),
}

/// The result of inserting a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Insertion {
    /// It is in the window.
    Kept,
    /// It is older than everything in a full window: it would be the first to be dropped.
    TooLate,
    /// It alone exceeds the bound on bytes.
    TooLarge,
    /// Another message has its stamp, and the first one wins.
    Duplicate,
    /// Its stamp is zero, which the window refuses by its [`StampOptions`].
    ZeroStamp,
}

/// What a window has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowStats {
    /// Messages that were inserted.
    pub inserted: u64,
    /// Of those, the ones that came after a message with a later stamp.
    pub late: u64,
    /// Messages dropped to stay within the bounds.
    pub evicted: u64,
    /// Of those, the ones that were not too old: they exceeded the bound on count or bytes.
    pub crowded_out: u64,
    /// Messages that were refused: too late or too large.
    pub refused: u64,
    /// How often the clock went back and the window started over.
    pub restarts: u64,
    /// Messages whose stamp was far ahead of all others while the stream continued where it was. A window drops them; a
    /// [`Recent`](crate::Recent) moves their log times back.
    pub future: u64,
    /// Messages with stamp zero, inserted or not.
    pub zero: u64,
    /// Messages refused or replaced because another has the same stamp.
    pub duplicates: u64,
}

impl<T> Window<T> {
    /// An empty window. Every message weighs its own size, without what it points to.
    pub fn new(bounds: Bounds) -> Self {
        Self::with(bounds, Weigh::Each(size_of::<T>() as u64))
    }

    /// An empty window that weighs each message with `weigh`: the bytes that it keeps alive.
    ///
    /// ```
    /// use asof_window::{Bounds, Window};
    ///
    /// let images = Window::weighed(Bounds::bytes(10), |image: &Vec<u8>| image.len() as u64);
    /// images.insert(1.into(), vec![0; 6]);
    /// images.insert(2.into(), vec![0; 6]);
    /// assert_eq!((images.len(), images.bytes()), (1, 6));
    /// ```
    pub fn weighed(bounds: Bounds, weigh: impl Fn(&T) -> u64 + Send + Sync + 'static) -> Self {
        Self::with(bounds, Weigh::By(Box::new(weigh)))
    }

    fn with(bounds: Bounds, weigh: Weigh<T>) -> Self {
        let state = State {
            runs: Runs::new(),
            health: Health::new(StampOptions::default(), &bounds),
            duplicates: Duplicates::default(),
            is_age_alone: bounds.is_age_alone(),
            bounds: bounds.closed(),
            bytes: 0,
            counters: WindowStats::default(),
            waiters: Waiters::default(),
            callbacks: Callbacks::default(),
            is_closed: false,
        };
        Window {
            shared: Arc::new(Shared {
                state: Lock::new(state),
                weigh,
            }),
        }
    }

    /// Inserts a message.
    pub fn insert(&self, stamp: Stamp, value: T) -> Insertion {
        self.insert_shared(stamp, Arc::new(value))
    }

    /// Inserts a shared message.
    pub fn insert_shared(&self, stamp: Stamp, value: Arc<T>) -> Insertion {
        let bytes = match &self.shared.weigh {
            Weigh::Each(bytes) => *bytes,
            Weigh::By(weigh) => weigh(&value),
        };
        self.insert_weighed(stamp, value, bytes)
    }

    /// Inserts a message that keeps this many bytes alive, where only the caller knows how many.
    #[inline]
    pub fn insert_weighed(&self, stamp: Stamp, value: Arc<T>, bytes: u64) -> Insertion {
        let mut dropped = Dropped::default();
        let mut state = self.lock();
        if let Some(refusal) = state.refuse(stamp.nanos(), bytes, &mut dropped) {
            // What a restart removed, and the message itself, are dropped outside of the lock.
            drop(state);
            dropped.tell();
            return refusal;
        }
        if state.waiters.is_empty() && state.callbacks.is_empty() {
            let kept = state.put(
                stamp.nanos(),
                WeightedMessage { value, bytes },
                &mut dropped,
            );
            drop(state);
            dropped.tell();
            return if kept {
                Insertion::Kept
            } else {
                Insertion::TooLate
            };
        }
        Self::insert_watched(state, &Entry::new(stamp, value), bytes, dropped)
    }

    /// The rest of an insert that has waiters or callbacks.
    #[inline(never)]
    fn insert_watched(
        mut state: Guard<'_, State<T>>,
        entry: &Entry<T>,
        bytes: u64,
        mut dropped: Dropped<T>,
    ) -> Insertion {
        let held = WeightedMessage {
            value: Arc::clone(&entry.value),
            bytes,
        };
        if !state.put(entry.stamp.nanos(), held, &mut dropped) {
            drop(state);
            dropped.tell();
            return Insertion::TooLate;
        }
        let called = state.callbacks.current();
        let (newest, version) = (state.runs.newest(), state.counters.inserted);
        let restarts = state.counters.restarts;
        let woken = state.waiters.take_ready(newest, version);
        drop(state);
        for waker in woken {
            contained(|| waker.wake());
        }
        if let Some(callbacks) = called {
            callbacks.call(entry, restarts);
        }
        // Last: freeing an old image takes longer than announcing a new one.
        dropped.tell();
        drop(dropped);
        Insertion::Kept
    }

    /// Calls `callback` with every message inserted from now on, until the connection is dropped.
    ///
    /// It is called on the inserting thread, outside of the lock: it may query the window, insert into it, connect and
    /// disconnect. Callbacks are called in the order of connection. A panic in one is reported and ends there.
    #[must_use = "the callback is disconnected when the connection is dropped"]
    pub fn on_insert(&self, callback: impl Fn(&Entry<T>) + Send + Sync + 'static) -> Connection
    where
        T: Send + Sync + 'static,
    {
        self.on_insert_counted(move |entry, _| callback(entry))
    }

    /// The same, also with how often the window had started over before the message.
    pub(crate) fn on_insert_counted(
        &self,
        callback: impl Fn(&Entry<T>, u64) + Send + Sync + 'static,
    ) -> Connection
    where
        T: Send + Sync + 'static,
    {
        let id = self.lock().callbacks.add(Arc::new(callback));
        let shared = Arc::downgrade(&self.shared);
        Connection::new(move || {
            if let Some(shared) = shared.upgrade() {
                let removed = shared.state.lock().callbacks.remove(id);
                // What the callback holds may have a destructor that queries this window.
                drop(removed);
            }
        })
    }

    /// Changes the bounds and drops what no longer fits.
    pub fn set_bounds(&self, bounds: Bounds) {
        let mut dropped = Dropped::default();
        let mut state = self.lock();
        state.is_age_alone = bounds.is_age_alone();
        state.bounds = bounds.closed();
        state.health = Health::new(state.health.options, &bounds);
        state.evict(&mut dropped);
        drop(state);
        dropped.tell();
    }

    /// Changes how stamps are judged.
    pub fn set_stamps(&self, options: StampOptions) {
        let mut state = self.lock();
        state.health = Health::new(options, &state.bounds);
    }

    /// Changes what happens to messages with the same stamp. Those already inserted stay.
    pub fn set_duplicates(&self, duplicates: Duplicates) {
        self.lock().duplicates = duplicates;
    }

    /// The current bounds.
    pub fn bounds(&self) -> Bounds {
        self.lock().bounds
    }

    /// Drops every message. Not counted as evictions.
    pub fn clear(&self) {
        let mut state = self.lock();
        let all = state.runs.take_all();
        state.bytes = 0;
        drop(state);
        drop(all);
    }

    /// The number of messages.
    pub fn len(&self) -> usize {
        self.lock().runs.len()
    }

    /// Whether it has no messages.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The total weight of its messages in bytes.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// What it has done so far.
    pub fn stats(&self) -> WindowStats {
        self.lock().counters
    }

    /// The number of messages ever inserted. It grows with every change that [`Window::changed`] waits for.
    pub fn version(&self) -> u64 {
        self.lock().counters.inserted
    }

    /// Ends all waits: no more messages will come. The messages in the window stay.
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let woken = state.waiters.take_all();
        drop(state);
        for waker in woken {
            contained(|| waker.wake());
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, State<T>> {
        self.shared.state.lock()
    }
}

impl<T> State<T> {
    /// Why a message is refused, if it is; counted.
    #[inline]
    fn refuse(&mut self, stamp: i64, bytes: u64, dropped: &mut Dropped<T>) -> Option<Insertion> {
        if bytes > self.bounds.bytes || self.bounds.count == 0 {
            self.counters.refused += 1;
            return Some(Insertion::TooLarge);
        }
        if stamp == 0 {
            self.counters.zero += 1;
            if self.health.options.refuse_zero {
                self.counters.refused += 1;
                return Some(Insertion::ZeroStamp);
            }
        }
        if self.duplicates == Duplicates::FirstWins && self.runs.contains(stamp) {
            self.counters.duplicates += 1;
            return Some(Insertion::Duplicate);
        }
        let Some(mut newest) = self.runs.newest() else {
            self.health.begin(stamp);
            return None;
        };
        if stamp >= newest {
            if stamp.abs_diff(newest) >= self.health.calm {
                self.health.go_ahead(stamp, newest);
            }
            return None;
        }
        let wrong = self.health.denied(stamp, newest);
        for _ in 0..wrong {
            self.drop_newest(dropped);
        }
        if wrong > 0 {
            newest = self.runs.newest()?;
        }
        // What is on probation makes nothing late.
        newest = self.health.trusted(newest);
        if stamp >= newest {
            return None;
        }
        let behind = newest.abs_diff(stamp);
        if behind > self.bounds.jump || self.is_set_back(stamp, newest) {
            self.start_over(stamp, dropped);
            return None;
        }
        let is_oldest = self.runs.oldest().is_some_and(|oldest| stamp < oldest);
        let is_full = self.runs.len() >= self.bounds.count
            || self.bytes.saturating_add(bytes) > self.bounds.bytes;
        if (is_oldest && is_full) || behind > self.bounds.age {
            self.counters.refused += 1;
            return Some(Insertion::TooLate);
        }
        None
    }

    /// Whether so many messages in a row are far behind the newest that the clock was set back.
    #[inline(always)]
    fn is_set_back(&mut self, stamp: i64, newest: i64) -> bool {
        let in_order = self.counters.inserted - self.counters.late;
        self.health.is_far_behind(stamp, newest)
            && self
                .health
                .is_set_back(stamp, newest, self.runs.len(), in_order)
    }

    /// The clock went back: what is held belongs to another time.
    #[cold]
    fn start_over(&mut self, stamp: i64, dropped: &mut Dropped<T>) {
        self.counters.restarts += 1;
        self.bytes = 0;
        dropped.more().all = Some(self.runs.take_all());
        self.health.begin(stamp);
    }

    /// Drops the newest message: its stamp was wrong.
    #[cold]
    fn drop_newest(&mut self, dropped: &mut Dropped<T>) {
        let ahead = self.runs.newest();
        let Some(held) = self.runs.pop_last() else {
            return;
        };
        self.bytes -= held.bytes;
        self.counters.future += 1;
        dropped.add(held.value);
        if self.counters.future == 1 {
            dropped.more().ahead = ahead;
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.counters.inserted
    }

    /// Whether the message is still there when everything is within bounds again.
    #[inline(always)]
    fn put(&mut self, stamp: i64, mut held: WeightedMessage<T>, dropped: &mut Dropped<T>) -> bool {
        self.counters.inserted += 1;
        let is_late = self.runs.newest().is_some_and(|newest| stamp < newest);
        self.bytes = self.bytes.saturating_add(held.bytes);
        if self.duplicates == Duplicates::LastWins {
            match self.replace(stamp, held, dropped) {
                Ok(is_there) => return is_there,
                Err(new) => held = new,
            }
        }
        self.runs.insert(stamp, held);
        self.evict(dropped);
        // A large message that is late can be too much for the bytes that newer ones leave.
        if is_late && self.runs.oldest().is_none_or(|oldest| stamp < oldest) {
            self.counters.inserted -= 1;
            self.counters.evicted -= 1;
            self.counters.crowded_out -= 1;
            self.counters.refused += 1;
            return false;
        }
        self.counters.late += u64::from(is_late);
        true
    }

    /// Replaces the message with this stamp, if there is one; then tells whether it is still there.
    #[cold]
    #[inline(never)]
    fn replace(
        &mut self,
        stamp: i64,
        held: WeightedMessage<T>,
        dropped: &mut Dropped<T>,
    ) -> Result<bool, WeightedMessage<T>> {
        let old = self.runs.replace(stamp, held)?;
        self.bytes -= old.bytes;
        self.counters.duplicates += 1;
        dropped.add(old.value);
        self.evict(dropped);
        Ok(self.runs.contains(stamp))
    }

    #[inline(always)]
    fn evict(&mut self, dropped: &mut Dropped<T>) {
        let Some(newest) = self.runs.newest() else {
            return;
        };
        // Saturated only where no stamp is that old.
        let horizon = self
            .health
            .trusted(newest)
            .saturating_sub_unsigned(self.bounds.age);
        while let Some(oldest) = self.runs.oldest() {
            let is_old = oldest < horizon;
            let is_much = self.runs.len() > self.bounds.count || self.bytes > self.bounds.bytes;
            if !is_old && !is_much {
                return;
            }
            let Some(held) = self.runs.pop_first() else {
                return;
            };
            self.bytes -= held.bytes;
            self.counters.evicted += 1;
            self.counters.crowded_out += u64::from(!is_old);
            if self.is_age_alone && !is_old && self.counters.crowded_out == 1 {
                dropped.more().is_crowded = true;
            }
            dropped.add(held.value);
        }
    }
}

/// What is removed under the lock, to be dropped after it. Usually one message, which costs no allocation.
struct Dropped<T> {
    one: Option<Arc<T>>,
    more: Option<Box<More<T>>>,
}

struct More<T> {
    values: Vec<Arc<T>>,
    all: Option<Runs<T>>,
    /// The stamp of the first message dropped because it was too far ahead.
    ahead: Option<i64>,
    /// Whether a window that is bounded by age alone has become too large for the first time.
    is_crowded: bool,
}

impl<T> Default for Dropped<T> {
    fn default() -> Self {
        Dropped {
            one: None,
            more: None,
        }
    }
}

impl<T> Dropped<T> {
    #[inline]
    fn add(&mut self, value: Arc<T>) {
        if self.one.is_none() {
            self.one = Some(value);
        } else {
            self.more().values.push(value);
        }
    }

    #[cold]
    fn more(&mut self) -> &mut More<T> {
        self.more.get_or_insert_with(|| {
            Box::new(More {
                values: Vec::new(),
                all: None,
                ahead: None,
                is_crowded: false,
            })
        })
    }

    /// Logs what happened, with no lock held.
    #[inline]
    fn tell(&self) {
        if let Some(more) = &self.more {
            more.tell();
        }
    }
}

impl<T> More<T> {
    #[cold]
    #[inline(never)]
    fn tell(&self) {
        if let Some(ahead) = self.ahead {
            tracing::warn!(
                "a message with stamp {} was far ahead of all others and was dropped; further ones are only counted",
                Stamp::from_nanos(ahead)
            );
        }
        if self.is_crowded {
            tracing::warn!(
                "a window that is bounded by age alone is full before its age, as when stamps stand still: its oldest messages \
                 are dropped, and only counted from now on; bound its count or bytes to choose how much it keeps"
            );
        }
    }
}

impl<T> Clone for Window<T> {
    fn clone(&self) -> Self {
        Window {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T> fmt::Debug for Window<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Window")
            .field("len", &state.runs.len())
            .field("bytes", &state.bytes)
            .field("oldest", &state.runs.oldest())
            .field("newest", &state.runs.newest())
            .field("bounds", &state.bounds)
            .field("counters", &state.counters)
            .finish_non_exhaustive()
    }
}
