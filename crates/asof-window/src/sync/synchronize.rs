//! Joining windows of different types in one call.

use std::sync::Arc;

use super::shared::SharedStats;
use super::tuple::{Of2, Of3, Of4, Of5, Of6, Of7, Of8, Of9, OneOf};
use super::{
    ApproximateEpsilonTime, ApproximateTime, ExactTime, LatestTime, Overflow, SharedSynchronizer,
    Stamped, Synchronizer,
};
use crate::{Connection, Entry, Window};

/// Calls `callback` with every set of messages that belong together: one of each window, two to nine of them.
///
/// The windows may be of different types. `policy` is the synchronizer, or a closure that makes one for a number of
/// topics. Messages inserted from now on are joined, until the returned handle is dropped. The callback is called
/// on a thread that inserts, outside of every lock; while it is busy, sets wait as for a [`SharedSynchronizer`].
///
/// ```
/// use asof_window::sync::{ApproximateTime, synchronize};
/// use asof_window::{Bounds, Window};
/// use std::sync::mpsc;
///
/// struct Image(u32);
/// let camera: Window<Image> = Window::new(Bounds::count(30));
/// let imu: Window<f64> = Window::new(Bounds::count(200));
/// let (sender, pairs) = mpsc::channel();
///
/// let joined = synchronize((&camera, &imu), ApproximateTime::new(2, 10), move |image, imu| {
///     let _ = sender.send((image.0, *imu, image.stamp.since(imu.stamp)));
/// });
/// camera.insert(100.into(), Image(1));
/// imu.insert(101.into(), 0.5);
/// camera.insert(200.into(), Image(2));
/// assert_eq!(pairs.try_iter().collect::<Vec<_>>(), [(1, 0.5, -1)]);
/// drop(joined);
/// ```
#[must_use = "the windows are joined until this is dropped"]
pub fn synchronize<W, P, F>(windows: W, policy: P, callback: F) -> Synchronized
where
    W: Windows<F>,
    P: SyncPolicy<W::One>,
    P::Synchronizer: Send + 'static,
{
    windows.join(policy.for_topics(W::One::TOPICS), callback)
}

/// The same for a synchronizer with optional topics or a longest wait: `callback` is called with a message of each window
/// that has one in the set.
///
/// ```
/// use asof_window::sync::{ApproximateEpsilonTime, synchronize_partial};
/// use asof_window::{Bounds, Window};
/// use std::sync::mpsc;
/// use std::time::Duration;
///
/// let camera: Window<&str> = Window::new(Bounds::count(30));
/// let gps: Window<f64> = Window::new(Bounds::count(30));
/// let (sender, sets) = mpsc::channel();
///
/// let policy = ApproximateEpsilonTime::new(2, 10, Duration::from_nanos(5)).with_optional(1);
/// let joined = synchronize_partial((&camera, &gps), policy, move |image, position| {
///     let _ = sender.send((image.map(|image| *image), position.map(|position| *position)));
/// });
/// camera.insert(100.into(), "indoors");
/// gps.insert(199.into(), 48.1);
/// camera.insert(200.into(), "outdoors");
/// let sets: Vec<_> = sets.try_iter().collect();
/// assert_eq!(sets, [(Some("indoors"), None), (Some("outdoors"), Some(48.1))]);
/// drop(joined);
/// ```
#[must_use = "the windows are joined until this is dropped"]
pub fn synchronize_partial<W, P, F>(windows: W, policy: P, callback: F) -> Synchronized
where
    W: PartialWindows<F>,
    P: SyncPolicy<W::One>,
    P::Synchronizer: Send + 'static,
{
    windows.join(policy.for_topics(W::One::TOPICS), callback)
}

/// A running synchronization. Dropping it ends it.
#[must_use = "the windows are joined until this is dropped"]
pub struct Synchronized {
    connections: Vec<Connection>,
    shared: Box<dyn Shared>,
}

impl Synchronized {
    /// The counts of the sets so far.
    pub fn stats(&self) -> SharedStats {
        self.shared.stats()
    }

    /// Sets how many sets may wait while the callback is busy (at least one), and which are dropped when there are
    /// more.
    pub fn set_outbox(&self, sets: usize, overflow: Overflow) {
        self.shared.set_outbox(sets, overflow);
    }

    /// Drops all messages that wait for a set. Happens by itself when one of the windows starts over
    /// ([`Bounds::and_restart_after`](crate::Bounds::and_restart_after)).
    pub fn clear(&self) {
        self.shared.clear();
    }

    /// Keeps joining for the lifetime of the windows.
    pub fn detach(self) {
        self.connections.into_iter().for_each(Connection::detach);
    }
}

/// A synchronizer with its message type erased.
trait Shared: Send + Sync {
    fn stats(&self) -> SharedStats;
    fn clear(&self);
    fn set_outbox(&self, sets: usize, overflow: Overflow);
}

impl<V: Send, S: Synchronizer<V> + Send> Shared for SharedSynchronizer<V, S> {
    fn stats(&self) -> SharedStats {
        SharedSynchronizer::stats(self)
    }

    fn clear(&self) {
        SharedSynchronizer::clear(self);
    }

    fn set_outbox(&self, sets: usize, overflow: Overflow) {
        SharedSynchronizer::set_outbox(self, sets, overflow);
    }
}

/// The policy of [`synchronize`]: a synchronizer, or a closure that makes one for a number of topics. A synchronizer is
/// used with its settings, for as many topics as there are windows.
pub trait SyncPolicy<V> {
    /// The synchronizer.
    type Synchronizer: Synchronizer<V>;

    /// A synchronizer of `topics` topics.
    fn for_topics(self, topics: usize) -> Self::Synchronizer;
}

impl<V, S: Synchronizer<V>, F: FnOnce(usize) -> S> SyncPolicy<V> for F {
    type Synchronizer = S;

    fn for_topics(self, topics: usize) -> S {
        self(topics)
    }
}

macro_rules! policy {
    ($($name:ident $(: $bound:ident)?),+) => {
        $(
            impl<V $(: $bound)?> SyncPolicy<V> for $name<V> {
                type Synchronizer = Self;

                fn for_topics(self, topics: usize) -> Self {
                    if self.topics() == topics {
                        self
                    } else {
                        self.with_topics(topics)
                    }
                }
            }
        )+
    };
}

policy!(ApproximateTime, ApproximateEpsilonTime, ExactTime, LatestTime: Clone);

/// A type with a window in it, such as the windows of asof-live.
pub trait WindowLike {
    /// What the window holds.
    type Value: Send + Sync + 'static;

    /// The window.
    fn window(&self) -> &Window<Self::Value>;
}

impl<T: Send + Sync + 'static> WindowLike for Window<T> {
    type Value = T;

    fn window(&self) -> &Window<T> {
        self
    }
}

/// A tuple of two to nine windows whose messages a callback `F` takes.
pub trait Windows<F> {
    /// A message of one of them.
    type One: OneOf;

    /// Feeds `synchronizer` from the windows.
    fn join<S>(self, synchronizer: S, callback: F) -> Synchronized
    where
        S: Synchronizer<Self::One> + Send + 'static;
}

/// A tuple of two to nine windows whose messages, where there are any, a callback `F` takes.
pub trait PartialWindows<F> {
    /// A message of one of them.
    type One: OneOf;

    /// Feeds `synchronizer` from the windows.
    fn join<S>(self, synchronizer: S, callback: F) -> Synchronized
    where
        S: Synchronizer<Self::One> + Send + 'static;
}

fn entry<T>(message: Stamped<Arc<T>>) -> Entry<T> {
    Entry::new(message.stamp, message.value)
}

macro_rules! windows {
    ($one_of:ident, $($type:ident $value:ident $index:tt),+) => {
        impl<$($type: WindowLike,)+ Call> Windows<Call> for ($(&$type,)+)
        where
            Call: Fn($(Entry<$type::Value>),+) + Send + Sync + 'static,
        {
            type One = $one_of<$(Arc<$type::Value>),+>;

            fn join<S>(self, synchronizer: S, callback: Call) -> Synchronized
            where
                S: Synchronizer<Self::One> + Send + 'static,
            {
                let shared = SharedSynchronizer::sets(synchronizer, move |set| {
                    if let Some(($($value,)+)) = Self::One::tuple(set) {
                        callback($(entry($value)),+);
                    }
                });
                let connections = vec![
                    $(shared.follow_as($index, self.$index.window(), $one_of::$type)),+
                ];
                Synchronized {
                    connections,
                    shared: Box::new(shared),
                }
            }
        }

        impl<$($type: WindowLike,)+ Call> PartialWindows<Call> for ($(&$type,)+)
        where
            Call: Fn($(Option<Entry<$type::Value>>),+) + Send + Sync + 'static,
        {
            type One = $one_of<$(Arc<$type::Value>),+>;

            fn join<S>(self, synchronizer: S, callback: Call) -> Synchronized
            where
                S: Synchronizer<Self::One> + Send + 'static,
            {
                let shared = SharedSynchronizer::new(synchronizer, move |event| {
                    let set = event.into_set().and_then(Self::One::partial);
                    if let Some(($($value,)+)) = set {
                        callback($($value.map(entry)),+);
                    }
                });
                let connections = vec![
                    $(shared.follow_as($index, self.$index.window(), $one_of::$type)),+
                ];
                Synchronized {
                    connections,
                    shared: Box::new(shared),
                }
            }
        }
    };
}

windows!(Of2, A a 0, B b 1);
windows!(Of3, A a 0, B b 1, C c 2);
windows!(Of4, A a 0, B b 1, C c 2, D d 3);
windows!(Of5, A a 0, B b 1, C c 2, D d 3, E e 4);
windows!(Of6, A a 0, B b 1, C c 2, D d 3, E e 4, F f 5);
windows!(Of7, A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6);
windows!(Of8, A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7);
windows!(Of9, A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8);
