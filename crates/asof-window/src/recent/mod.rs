//! The newest messages of all topics of a live source.

mod builder;
mod follower;
mod store;

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use asof_core::{
    Batch, Batches, Channel, Follow, FollowEnd, FollowFused, Growth, Message, Problem, Query,
    Source, SourceError, Stamp, Summary, Topics,
};

use bytes::Bytes;

use crate::{Bounds, StampOptions, WindowStats};
use builder::Later;
use follower::Follower;
use store::{Gone, Store};

/// The newest messages of all topics of a live source, bounded by age, count and bytes.
///
/// The receiving side [pushes](Recent::push) messages. It is a [`Source`] like a recording: it can be read, queried for
/// what was known at an instant, and followed. Clones share everything.
///
/// # What it promises
///
/// - **Bounds.** Messages beyond the bounds are dropped oldest first, across all topics, and counted. The bytes include
///   payloads with what they keep alive, the entries, the channels and their schemas.
/// - **The last message of each topic is kept** for [`latest_at`](Source::latest_at), even after all others were dropped:
///   a map that was sent once is still there.
/// - **Log times increase.** A message that is not later than the one before it is moved right after that one and
///   counted as late. Followers see increasing log times, except in the cases below.
/// - **A clock that is set back restarts it.** Earlier messages belong to another time: they are dropped, a [`Problem`]
///   is recorded, and followers are [notified](asof_core::Followed::Restarted). The bound is
///   [`Bounds::and_restart_after`], one second by default.
///
/// - **One log time far in the future costs nothing.** A log time that is ahead of all others by more than
///   [`StampOptions::max_ahead`] evicts nothing until another message confirms it. If the next message continues as
///   before, it is moved right after the one before it, counted as [`future`](WindowStats::future), and a [`Problem`]
///   is recorded. A follower that already received it sees earlier log times after it.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use asof_core::{Channel, Message, Source, Stamp, Topics};
/// use asof_window::{Bounds, Recent};
///
/// let recent = Recent::new(Bounds::age(Duration::from_secs(2)));
/// let channel = Arc::new(Channel { topic: "/odom".into(), ..Channel::default() });
/// for second in 0..5 {
///     let at = Stamp::EPOCH + Duration::from_secs(second);
///     let payload = format!("{second}").into();
///     recent.push(Message { channel: Arc::clone(&channel), log_time: at, publish_time: at, sequence: 0, payload });
/// }
/// assert_eq!(recent.stats().messages, 3);
/// assert_eq!(recent.stats().counters.evicted, 2);
/// let known = recent.latest_at(&Topics::All, "3.5".parse()?)?;
/// assert_eq!(known.get(0).expect("one").payload, b"3");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Recent {
    bounds: Bounds,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Mutex<Store>,
    /// Wakes waiting followers.
    came: Condvar,
}

/// What a [`Recent`] holds and has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecentStats {
    /// Messages that can be read.
    pub messages: u64,
    /// Bytes held, with everything that they keep alive.
    pub bytes: u64,
    /// Last messages of topics that were no longer carried along: all of them together may take a quarter of the bytes, and
    /// the largest is dropped first.
    pub carried_dropped: u64,
    /// The counters of a window.
    pub counters: WindowStats,
}

/// A clock that is set back by less than this does not restart it.
const RESTART_AFTER: Duration = Duration::from_secs(1);

impl Default for Recent {
    /// Keeps five minutes and at most 600 MB.
    fn default() -> Self {
        Recent::new(Bounds::age(Duration::from_mins(5)).and_bytes(600_000_000))
    }
}

impl Recent {
    /// An empty store with these bounds.
    pub fn new(bounds: Bounds) -> Self {
        let bounds = match bounds.restart_after() {
            Some(_) => bounds,
            None => bounds.and_restart_after(RESTART_AFTER),
        }
        .closed();
        Recent {
            bounds,
            shared: Arc::new(Shared {
                store: Mutex::default(),
                came: Condvar::new(),
            }),
        }
    }

    /// The bounds.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Changes how log times are judged.
    pub fn set_stamps(&self, options: StampOptions) {
        self.lock().stamps = options;
    }

    /// Adds a message that keeps only its payload alive.
    pub fn push(&self, message: Message) {
        let bytes = message.payload.len() as u64;
        self.push_weighed(message, bytes);
    }

    /// Adds a message that keeps `bytes` alive: its payload may be part of a larger buffer.
    pub fn push_weighed(&self, message: Message, bytes: u64) {
        self.add((message, None), bytes);
    }

    /// Adds a message whose payload of `len` bytes is made when somebody first reads it, on that reader's thread and
    /// with no lock held: a large picture arrives in pieces, and perhaps nobody looks at it. Until then, and after, it
    /// keeps at most `bytes` alive. `payload` is called for each reader, and has to return the same bytes.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use asof_core::{Channel, Message, Source, Stamp, Topics};
    /// use asof_window::Recent;
    ///
    /// let recent = Recent::default();
    /// let channel = Arc::new(Channel { topic: "/camera".into(), ..Channel::default() });
    /// let at = Stamp::from_nanos(5);
    /// let message = Message { channel, log_time: at, publish_time: at, sequence: 0, payload: Default::default() };
    /// let pieces = [b"half a ".to_vec(), b"picture".to_vec()];
    /// recent.push_later(message, 14, 14, move || pieces.concat().into());
    /// let known = recent.latest_at(&Topics::All, at)?;
    /// assert_eq!(known.iter().next().map(|one| one.payload.to_vec()), Some(b"half a picture".to_vec()));
    /// # Ok::<(), asof_core::SourceError>(())
    /// ```
    pub fn push_later(
        &self,
        message: Message,
        len: u64,
        bytes: u64,
        payload: impl Fn() -> Bytes + Send + Sync + 'static,
    ) {
        let make = Arc::new(payload);
        self.add((message, Some(Later { len, make })), bytes.max(len));
    }

    fn add(&self, message: (Message, Option<Later>), bytes: u64) {
        let mut gone = Gone::default();
        let mut store = self.lock();
        if store.end.is_some() {
            return;
        }
        store.push(message, bytes, self.bounds, &mut gone);
        let has_waiting = store.waiting > 0;
        drop(store);
        if has_waiting {
            self.shared.came.notify_all();
        }
        // Payloads are freed with no lock held.
        drop(gone);
    }

    /// Lists a topic that may have no message yet.
    pub fn add_channel(&self, channel: &Arc<Channel>) {
        let mut gone = Gone::default();
        let mut store = self.lock();
        if let Some(lane) = store.lane_of(&channel.topic) {
            store.meet(lane, channel);
            store.fit(self.bounds, &mut gone);
        }
        drop(store);
        drop(gone);
    }

    /// Records a problem; [`Summary::problems`] lists it.
    pub fn tell(&self, problem: Problem) {
        self.lock().tell(problem);
    }

    /// Sets whether the robot is connected; [`Summary::recent`] shows it.
    pub fn set_connected(&self, is_connected: bool) {
        self.lock().set_connected(is_connected);
    }

    /// Whether the robot is connected, as last set by [`Recent::set_connected`].
    pub fn is_connected(&self) -> bool {
        self.lock().is_connected
    }

    /// Ends the stream: from here on it is a finished recording of what it holds, and takes no messages. Followers receive
    /// what is held and then the reason.
    pub fn close(&self, end: FollowEnd) {
        self.lock().end.get_or_insert(end);
        self.shared.came.notify_all();
    }

    /// What is held and has been done.
    pub fn stats(&self) -> RecentStats {
        self.lock().stats
    }

    /// Dropped messages by topic.
    pub fn evicted_by_topic(&self) -> BTreeMap<String, u64> {
        self.lock().evicted_by_topic()
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        self.shared.lock()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change or the deadline.
    fn wait<'a>(
        &self,
        mut store: MutexGuard<'a, Store>,
        deadline: Instant,
    ) -> MutexGuard<'a, Store> {
        let patience = deadline.saturating_duration_since(Instant::now());
        store.waiting += 1;
        let (mut store, _) = self
            .came
            .wait_timeout(store, patience)
            .unwrap_or_else(PoisonError::into_inner);
        store.waiting -= 1;
        store
    }
}

impl Source for Recent {
    fn summary(&self) -> Arc<Summary> {
        self.lock().summary(self.bounds)
    }

    /// Each batch holds what is there when it is requested, up to the query's end.
    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        let (own, query) = (self.clone(), query.clone());
        let mut at = (query.range.start, 0);
        Ok(Box::new(std::iter::from_fn(move || {
            let (batch, next) = own.lock().batch(&query, at)?;
            at = next;
            Some(Ok(batch.finish()))
        })))
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        let found = self.lock().latest_at(topics, at);
        Ok(found.finish())
    }

    /// It grows until it is [closed](Recent::close).
    fn growth(&self) -> Growth {
        if self.lock().end.is_some() {
            Growth::Finished
        } else {
            Growth::Growing
        }
    }

    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        let follower = Follower::new(&self.shared, query);
        Ok(Box::new(FollowFused::new(follower)))
    }
}
