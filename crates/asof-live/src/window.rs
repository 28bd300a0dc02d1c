//! Windows that a robot fills.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use asof_core::{Message, Stamp};
use asof_window::sync::WindowLike;
use asof_window::{
    Arrival, Bounds, MessageStamp, ReceiveStamp, SourceStamp, Stamping, TransportStamp, Window,
};

use crate::{LiveError, Robot, Sample, Subscription};

/// Why a sample is not a value: any error, also one made of text (`"too short".into()`).
pub type SampleError = Box<dyn std::error::Error + Send + Sync>;

/// A type that a window can hold: made from a sample, on the receive thread.
pub trait FromSample: Sized + Send + Sync + 'static {
    /// Converts a sample to a value.
    ///
    /// # Errors
    /// When it cannot be converted; the window counts it and logs the first error.
    fn from_sample(sample: Sample) -> Result<Self, SampleError>;

    /// The memory that the value keeps alive.
    fn weight(&self) -> u64 {
        size_of::<Self>() as u64
    }
}

/// As received: nothing is decoded or copied.
impl FromSample for Sample {
    fn from_sample(sample: Sample) -> Result<Self, SampleError> {
        Ok(sample)
    }

    fn weight(&self) -> u64 {
        Sample::weight(self)
    }
}

/// In one piece, as in a recording.
impl FromSample for Message {
    fn from_sample(sample: Sample) -> Result<Self, SampleError> {
        Ok(sample.to_message())
    }

    fn weight(&self) -> u64 {
        (self.payload.len() + size_of::<Self>()) as u64
    }
}

/// Builds a window; see [`Robot::create_window`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct WindowBuilder<T, S = TransportStamp> {
    robot: Robot,
    topic: String,
    bounds: Bounds,
    stamping: S,
    value: PhantomData<fn() -> T>,
}

impl Robot {
    /// Builds a window over a topic, with the newest `capacity` messages, indexed by the transport's timestamp.
    ///
    /// A name with a leading slash is a ROS topic (`/imu/data`), discovered now or whenever it appears; any other name
    /// is a raw key expression (`demo/**`).
    pub fn create_window<T: FromSample>(
        &self,
        topic: impl Into<String>,
        capacity: usize,
    ) -> WindowBuilder<T> {
        WindowBuilder {
            robot: self.clone(),
            topic: topic.into(),
            bounds: Bounds::count(capacity),
            stamping: TransportStamp,
            value: PhantomData,
        }
    }
}

impl<T: FromSample> WindowBuilder<T> {
    /// Indexes by a time in the message, which `stamp` extracts.
    pub fn with_stamp<F: Fn(&T) -> Option<Stamp> + Send + Sync + 'static>(
        self,
        stamp: F,
    ) -> WindowBuilder<T, MessageStamp<F>> {
        self.with_stamping(MessageStamp(stamp))
    }

    /// Indexes by the time that the publisher attached.
    pub fn with_source_stamp(self) -> WindowBuilder<T, SourceStamp> {
        self.with_stamping(SourceStamp)
    }

    /// Indexes by the time of receipt.
    pub fn with_receive_stamp(self) -> WindowBuilder<T, ReceiveStamp> {
        self.with_stamping(ReceiveStamp)
    }

    /// Indexes by any other strategy.
    pub fn with_stamping<S: Stamping<T>>(self, stamping: S) -> WindowBuilder<T, S> {
        WindowBuilder {
            robot: self.robot,
            topic: self.topic,
            bounds: self.bounds,
            stamping,
            value: PhantomData,
        }
    }
}

impl<T: FromSample, S: Stamping<T>> WindowBuilder<T, S> {
    /// Keeps the newest `capacity` messages.
    pub fn with_capacity(mut self, capacity: usize) -> Self {
        self.bounds = self.bounds.and_count(capacity);
        self
    }

    /// Keeps messages within these bounds: by count, age, bytes.
    pub fn with_bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Subscribes, and returns the window.
    ///
    /// # Errors
    /// When the topic is neither a ROS topic nor a valid key expression.
    pub fn build(self) -> Result<LiveWindow<T>, LiveError> {
        let window = Window::new(self.bounds);
        let stamping = self.stamping;
        let make = move |sample: Sample| {
            let (transport, source, received) = (sample.transport, sample.source, sample.received);
            let value = T::from_sample(sample).map_err(|error| error.to_string())?;
            let arrival = Arrival {
                value: &value,
                transport,
                source,
                received,
            };
            let stamp = stamping.stamp(&arrival);
            Ok(Filling {
                stamp,
                bytes: value.weight(),
                value,
            })
        };
        LiveWindow::filled(&self.robot, &self.topic, window, make)
    }
}

impl<T: Send + Sync + 'static> LiveWindow<T> {
    /// A window that is filled with what `make` makes of a topic's samples.
    pub(crate) fn filled(
        robot: &Robot,
        topic: &str,
        window: Window<T>,
        make: impl Fn(Sample) -> Result<Filling<T>, String> + Send + Sync + 'static,
    ) -> Result<Self, LiveError> {
        let counters = Arc::new(LiveWindowStats::default());
        let filler = Filler {
            window: window.clone(),
            make,
            counters: Arc::clone(&counters),
            topic: topic.to_owned(),
        };
        let fill = move |sample| filler.fill(sample);
        let subscription = if topic.starts_with('/') {
            let name = topic.trim_end_matches('/').to_owned();
            let wants = move |publisher: &crate::Publisher| publisher.channel.topic == name;
            robot.subscribe(wants, fill)
        } else {
            robot.subscribe_key(topic, fill)?
        };
        Ok(LiveWindow {
            window,
            counters,
            subscription,
            _robot: robot.clone(),
        })
    }
}

/// A window with the subscription that fills it. It dereferences to a [`Window`]; dropping it ends the subscription.
pub struct LiveWindow<T> {
    window: Window<T>,
    counters: Arc<LiveWindowStats>,
    subscription: Subscription,
    _robot: Robot,
}

#[derive(Default)]
struct LiveWindowStats {
    fallbacks: AtomicU64,
    undecodable: AtomicU64,
}

impl<T> LiveWindow<T> {
    /// How many messages had no stamp of the chosen kind and were indexed by their receipt time.
    pub fn stamp_fallbacks(&self) -> u64 {
        self.counters.fallbacks.load(Ordering::Relaxed)
    }

    /// How many messages could not be converted, and are not in the window.
    pub fn undecodable(&self) -> u64 {
        self.counters.undecodable.load(Ordering::Relaxed)
    }

    /// The exact keys that are subscribed now; none while the topic is not published.
    pub fn keys(&self) -> Vec<String> {
        self.subscription.keys()
    }
}

impl<T> Deref for LiveWindow<T> {
    type Target = Window<T>;

    fn deref(&self) -> &Window<T> {
        &self.window
    }
}

/// Live windows can be synchronized directly: `synchronize((&camera, &imu), …)`.
impl<T: Send + Sync + 'static> WindowLike for LiveWindow<T> {
    type Value = T;

    fn window(&self) -> &Window<T> {
        &self.window
    }
}

impl<T> Drop for LiveWindow<T> {
    fn drop(&mut self) {
        // Other holders of the window may wait for messages that will not come any more.
        self.window.close();
    }
}

/// A value for a window.
pub(crate) struct Filling<T> {
    /// Where it has one.
    pub(crate) stamp: Option<Stamp>,
    pub(crate) value: T,
    /// The memory that it keeps alive.
    pub(crate) bytes: u64,
}

struct Filler<T, M> {
    window: Window<T>,
    make: M,
    counters: Arc<LiveWindowStats>,
    topic: String,
}

impl<T, M: Fn(Sample) -> Result<Filling<T>, String>> Filler<T, M> {
    fn fill(&self, sample: Sample) {
        let received = sample.received;
        let Filling {
            stamp,
            value,
            bytes,
        } = match (self.make)(sample) {
            Ok(made) => made,
            Err(reason) => {
                if self.counters.undecodable.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::warn!("{}: a message was skipped: {reason}", self.topic);
                }
                return;
            }
        };
        let stamp = stamp.unwrap_or_else(|| {
            if self.counters.fallbacks.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::warn!(
                    "{}: a message has no stamp; it is indexed by its receipt time",
                    self.topic
                );
            }
            received
        });
        self.window.insert_weighed(stamp, Arc::new(value), bytes);
    }
}
