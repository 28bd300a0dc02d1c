//! A robot's transforms: listened to, and broadcast.

mod broadcast;
mod filter;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use asof_core::{Batch, Message};
use asof_tf::{
    BufferOptions, Conflicts, LoaderOptions, TransformBuffer, TransformLoader, TransformLoaders,
    feeds_transforms,
};
use parking_lot::Mutex;

pub use self::broadcast::Broadcaster;
use self::filter::{Filter, Poked};
pub use self::filter::{FilterFailure, FilterOptions, FilterStats, TransformFilter};
use crate::{Robot, Subscription};

/// Stamps of a frame that go back by more than this, several times in a row, mean that the robot's clock was set back.
const RESTART_AFTER: Duration = Duration::from_secs(1);
/// Frames without a transform for this long make room for others, when there are very many.
const FORGET_AFTER: Duration = Duration::from_mins(1);

impl Robot {
    /// Listens to the robot's transforms: `/tf`, `/tf_static`, and every other topic of their type. Frames that no
    /// transform places come from the robot's description (`/robot_description`) and joint states. Keeps ten seconds
    /// of each edge. A frame that changes its parent has each parent for the times of its samples, as in tf2.
    ///
    /// Robots in namespaces of their own, on `/robot1/tf` and `/robot2/tf`, have a buffer each: see
    /// [`LiveTransforms::namespaces`].
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use asof_core::Stamp;
    ///
    /// let robot = asof_live::connect("zenoh://192.168.1.5:7447")?;
    /// let transforms = robot.transforms();
    /// let pose = transforms.wait_for("map", "base_link", Stamp::now(), Duration::from_secs(1))?;
    /// println!("{}", pose.translation);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn transforms(&self) -> LiveTransforms {
        self.transforms_with(BufferOptions::default().conflicts(Conflicts::LastWins))
    }

    /// The same, with other options.
    pub fn transforms_with(&self, options: BufferOptions) -> LiveTransforms {
        self.transforms_of(options, |_| true)
    }

    /// The same, of the topics for which `is_wanted` holds: `|topic| topic.starts_with("/robot1/")`.
    pub fn transforms_of(
        &self,
        options: BufferOptions,
        is_wanted: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> LiveTransforms {
        let listener = Arc::new(Listener::new(options));
        let (filled, met) = (Arc::clone(&listener), Arc::clone(&listener));
        let subscription = self.subscribe(
            move |publisher| {
                let channel = &publisher.channel;
                let is_one = feeds_transforms(channel) && is_wanted(&channel.topic);
                if is_one {
                    met.loaders.lock().learn(channel);
                }
                is_one
            },
            move |sample| filled.fill(sample.to_message()),
        );
        LiveTransforms {
            listener,
            subscription,
            _robot: self.clone(),
        }
    }
}

/// A transform buffer that is filled by a robot. It dereferences to a [`TransformBuffer`]; dropping it ends the
/// subscriptions. Of several robots it is that of the first namespace, in the order of their names, that was known when the
/// first transform came.
///
/// When the robot's clock is set back (a simulation that restarts, a recording that loops), the buffer starts over:
/// static transforms stay, all others are discarded, and messages that wait in filters are dropped. This is logged and
/// counted.
pub struct LiveTransforms {
    listener: Arc<Listener>,
    subscription: Subscription,
    _robot: Robot,
}

/// The counts of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransformStats {
    /// Transforms that were received, including those computed from joint positions.
    pub received: u64,
    /// Kinds of transforms that the buffer refused, once per message, and messages that could not be read.
    pub refused: u64,
    /// How often the robot's clock was set back and the buffer started over.
    pub restarts: u64,
}

impl LiveTransforms {
    /// The counts of received and refused transforms.
    pub fn transform_stats(&self) -> TransformStats {
        let stats = &self.listener.stats;
        TransformStats {
            received: stats.received.load(Ordering::Relaxed),
            refused: stats.refused.load(Ordering::Relaxed),
            restarts: stats.restarts.load(Ordering::Relaxed),
        }
    }

    /// The namespaces of the robots that were heard, as `/robot1`; empty for that of `/tf`.
    pub fn namespaces(&self) -> Vec<String> {
        let buffers = self.listener.buffers.lock();
        buffers.keys().cloned().collect()
    }

    /// The buffer of a namespace, if it was heard.
    pub fn namespace(&self, namespace: &str) -> Option<TransformBuffer> {
        let buffers = self.listener.buffers.lock();
        buffers.get(namespace).map(|(buffer, _)| buffer.clone())
    }

    /// The exact keys that are subscribed now.
    pub fn keys(&self) -> Vec<String> {
        self.subscription.keys()
    }

    /// Holds values until they can be transformed into `target`, then passes them to `callback`: on the thread that
    /// received the last missing transform, or on that of [`push`](TransformFilter::push) where none is missing. At
    /// most `capacity` values wait; the oldest is dropped first, and counted.
    pub fn filter<T: Send + 'static>(
        &self,
        target: &str,
        capacity: usize,
        callback: impl Fn(T) + Send + Sync + 'static,
    ) -> TransformFilter<T> {
        let options = FilterOptions {
            targets: vec![target.to_owned()],
            tolerance: Duration::ZERO,
            capacity,
        };
        self.filter_with(options, callback, |_, _| {})
    }

    /// The same for several targets, and with a callback for what is dropped.
    pub fn filter_with<T: Send + 'static>(
        &self,
        options: FilterOptions,
        callback: impl Fn(T) + Send + Sync + 'static,
        failed: impl Fn(T, FilterFailure) + Send + Sync + 'static,
    ) -> TransformFilter<T> {
        self.listener.filter(options, callback, failed)
    }
}

impl Deref for LiveTransforms {
    type Target = TransformBuffer;

    fn deref(&self) -> &TransformBuffer {
        &self.listener.buffer
    }
}

struct Listener {
    /// That of the first namespace.
    buffer: TransformBuffer,
    /// Extract transforms from messages; one message at a time. Callbacks of the buffers run meanwhile.
    loaders: Mutex<TransformLoaders>,
    /// The buffers by namespace, which those callbacks may ask for, and whether it is the first.
    buffers: Arc<Mutex<BTreeMap<String, (TransformBuffer, bool)>>>,
    filters: Mutex<Vec<Weak<dyn Poked>>>,
    stats: ListenerStats,
}

#[derive(Default)]
struct ListenerStats {
    received: AtomicU64,
    refused: AtomicU64,
    restarts: AtomicU64,
}

impl Listener {
    fn new(options: BufferOptions) -> Self {
        let loading = LoaderOptions {
            jump_back: Some(RESTART_AFTER),
            forget_after: Some(FORGET_AFTER),
            ..LoaderOptions::default()
        };
        let buffer = TransformBuffer::with_options(options);
        let mut first = Some(buffer.clone());
        let buffers = Arc::<Mutex<BTreeMap<String, (TransformBuffer, bool)>>>::default();
        let known = Arc::clone(&buffers);
        let loaders = TransformLoaders::new(move |namespace| {
            let is_first = first.is_some();
            let buffer = first.take().unwrap_or_else(|| {
                tracing::warn!("the transforms of '{namespace}' have a buffer of their own");
                TransformBuffer::with_options(options)
            });
            let both = (buffer.clone(), is_first);
            known.lock().insert(namespace.to_owned(), both);
            TransformLoader::with_options(buffer, loading)
        });
        let known = Arc::clone(&buffers);
        let loaders = loaders.on_rename(move |before, now| {
            let mut known = known.lock();
            if let Some(both) = known.remove(before) {
                known.insert(now.to_owned(), both);
            }
        });
        Listener {
            loaders: Mutex::new(loaders),
            buffers,
            buffer,
            filters: Mutex::default(),
            stats: ListenerStats::default(),
        }
    }

    fn fill(&self, message: Message) {
        let batch: Batch = std::iter::once(message).collect();
        let absorbed = self.loaders.lock().absorb(&batch);
        let received = absorbed.transforms + absorbed.joints;
        self.stats.received.fetch_add(received, Ordering::Relaxed);
        for problem in &absorbed.problems {
            self.refuse(&problem.to_string());
        }
        for moved in &absorbed.moved {
            tracing::info!("{moved}");
        }
        let mut is_restart = false;
        if let Some(jump) = &absorbed.jump {
            self.stats.restarts.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("{jump}");
            // Filters are those of the first buffer.
            let buffers = self.buffers.lock();
            is_restart = (buffers.get(&jump.namespace)).is_some_and(|(_, is_first)| *is_first);
        }
        self.poke(is_restart);
    }

    fn filter<T: Send + 'static>(
        &self,
        options: FilterOptions,
        callback: impl Fn(T) + Send + Sync + 'static,
        failed: impl Fn(T, FilterFailure) + Send + Sync + 'static,
    ) -> TransformFilter<T> {
        let buffer = self.buffer.clone();
        let filter = Arc::new(Filter::new(buffer, options, callback, failed));
        let listed: Arc<dyn Poked> = Arc::<Filter<T>>::clone(&filter);
        self.filters.lock().push(Arc::downgrade(&listed));
        TransformFilter(filter)
    }

    fn refuse(&self, reason: &str) {
        if self.stats.refused.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!("a transform was skipped: {reason}");
        }
    }

    /// Makes filters check again, or drop what they hold.
    fn poke(&self, is_restart: bool) {
        let filters: Vec<_> = {
            let mut filters = self.filters.lock();
            filters.retain(|filter| filter.strong_count() > 0);
            filters.iter().filter_map(Weak::upgrade).collect()
        };
        for filter in filters {
            filter.poke(is_restart);
        }
    }
}
