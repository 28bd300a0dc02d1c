//! A robot's transforms: listened to, and broadcast.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use asof_core::{Batch, Message, Stamp};
use asof_ros::{CdrWriter, Definitions};
use asof_tf::ros::StampedTransform;
use asof_tf::{
    BufferOptions, Conflicts, LoaderOptions, TransformBuffer, TransformLoader, TransformLoaders,
    TransformWaitError, feeds_transforms,
};
use parking_lot::Mutex;

use crate::robot::now;
use crate::ros::{Durability, QosProfile};
use crate::subscribe::contained;
use crate::{LiveError, PublisherOptions, Robot, Subscription, TopicPublisher};

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

    /// Announces a node that publishes transforms on `/tf` and `/tf_static`, as the broadcasters of ROS 2 do.
    ///
    /// # Errors
    /// When the session is closed.
    pub fn broadcaster(&self, node: &str) -> Result<Broadcaster, LiveError> {
        Ok(Broadcaster {
            moving: voice(self, node, "/tf")?,
            fixed: voice(self, node, "/tf_static")?,
            held: Mutex::default(),
        })
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
        let filter = Arc::new(Filter {
            buffer: self.buffer.clone(),
            options,
            state: Mutex::new(FilterState {
                waiting: Vec::new(),
                stats: FilterStats::default(),
            }),
            callback: Box::new(callback),
            failed: Box::new(failed),
        });
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

/// Anything that waits for transforms.
trait Poked: Send + Sync {
    fn poke(&self, is_restart: bool);
}

/// Holds values until they can be transformed; see [`LiveTransforms::filter`]. Clones share everything.
pub struct TransformFilter<T>(Arc<Filter<T>>);

impl<T> Clone for TransformFilter<T> {
    fn clone(&self) -> Self {
        TransformFilter(Arc::clone(&self.0))
    }
}

/// Options of a [`TransformFilter`].
#[derive(Debug, Clone)]
pub struct FilterOptions {
    /// The frames that a value must be transformable into, all of them.
    pub targets: Vec<String>,
    /// How long after a value's stamp the transforms must be known too.
    pub tolerance: Duration,
    /// The most values that wait; at least one.
    pub capacity: usize,
}

/// Why a filter dropped a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterFailure {
    /// Too many waited.
    CrowdedOut,
    /// It is older than what the buffer keeps; no transform can place it any more.
    TooOld,
    /// The robot's clock was set back.
    Restarted,
}

/// The counts of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FilterStats {
    /// Values that were passed on.
    pub passed: u64,
    /// Values that wait.
    pub waiting: u64,
    /// Values that were dropped because too many waited.
    pub crowded_out: u64,
    /// Values that were dropped because they are older than what the buffer keeps.
    pub too_old: u64,
    /// Values that were dropped because the robot's clock was set back.
    pub restarted: u64,
}

struct Filter<T> {
    buffer: TransformBuffer,
    options: FilterOptions,
    state: Mutex<FilterState<T>>,
    callback: Box<dyn Fn(T) + Send + Sync>,
    failed: Box<dyn Fn(T, FilterFailure) + Send + Sync>,
}

struct FilterState<T> {
    waiting: Vec<WaitingValue<T>>,
    stats: FilterStats,
}

struct WaitingValue<T> {
    frame: String,
    stamp: Stamp,
    value: T,
}

impl<T: Send + 'static> TransformFilter<T> {
    /// Adds a value that was measured in `frame` at `stamp`.
    pub fn push(&self, frame: &str, stamp: Stamp, value: T) {
        let filter = &self.0;
        let mut state = filter.state.lock();
        let mut dropped = None;
        if state.waiting.len() >= filter.options.capacity.max(1) {
            dropped = Some(state.waiting.remove(0));
            state.stats.crowded_out += 1;
        }
        state.waiting.push(WaitingValue {
            frame: frame.to_owned(),
            stamp,
            value,
        });
        drop(state);
        if let Some(held) = dropped {
            contained(|| (filter.failed)(held.value, FilterFailure::CrowdedOut));
        }
        filter.poke(false);
    }

    /// The counts of passed, waiting and dropped values.
    pub fn stats(&self) -> FilterStats {
        let state = self.0.state.lock();
        FilterStats {
            waiting: state.waiting.len() as u64,
            ..state.stats
        }
    }
}

impl<T> Filter<T> {
    /// Whether a value can be transformed, or why it never can; `None` while a transform may still come.
    fn is_ready(&self, held: &WaitingValue<T>) -> Option<Result<(), FilterFailure>> {
        let tolerance = i64::try_from(self.options.tolerance.as_nanos()).unwrap_or(i64::MAX);
        let mut ends = vec![held.stamp];
        if tolerance > 0 {
            ends.push(held.stamp.plus_nanos(tolerance));
        }
        let mut is_ready = true;
        for target in &self.options.targets {
            for stamp in &ends {
                let (target, frame) = (target.as_str(), held.frame.as_str());
                match (self.buffer).wait_for(target, frame, *stamp, Duration::ZERO) {
                    Ok(_) => {}
                    Err(TransformWaitError::Never(_)) => return Some(Err(FilterFailure::TooOld)),
                    Err(_) => is_ready = false,
                }
            }
        }
        is_ready.then_some(Ok(()))
    }
}

impl<T: Send + 'static> Poked for Filter<T> {
    fn poke(&self, is_restart: bool) {
        let mut ended = Vec::new();
        let mut state = self.state.lock();
        for held in std::mem::take(&mut state.waiting) {
            let end = if is_restart {
                Some(Err(FilterFailure::Restarted))
            } else {
                self.is_ready(&held)
            };
            let stats = &mut state.stats;
            match end {
                None => state.waiting.push(held),
                Some(end) => {
                    match end {
                        Ok(()) => stats.passed += 1,
                        Err(FilterFailure::Restarted) => stats.restarted += 1,
                        Err(_) => stats.too_old += 1,
                    }
                    ended.push((held.value, end));
                }
            }
        }
        drop(state);
        // Without the lock: the callbacks may push again.
        for (value, end) in ended {
            contained(|| match end {
                Ok(()) => (self.callback)(value),
                Err(failure) => (self.failed)(value, failure),
            });
        }
    }
}

/// Publishes transforms as the broadcasters of ROS 2 do; made by [`Robot::broadcaster`].
pub struct Broadcaster {
    moving: TopicPublisher,
    fixed: TopicPublisher,
    /// All static transforms so far: late joiners receive only the last message.
    held: Mutex<Vec<StampedTransform>>,
}

impl Broadcaster {
    /// Publishes transforms on `/tf`.
    ///
    /// # Errors
    /// When the session is closed.
    pub fn send(&self, transforms: &[StampedTransform]) -> Result<(), LiveError> {
        self.moving.publish(encoded(transforms), now())
    }

    /// Publishes static transforms on `/tf_static`, together with all that were sent before, so that late joiners
    /// receive them too. A transform replaces an earlier one of the same child.
    ///
    /// # Errors
    /// When the session is closed.
    pub fn send_static(&self, transforms: &[StampedTransform]) -> Result<(), LiveError> {
        let mut held = self.held.lock();
        for one in transforms {
            match held.iter_mut().find(|known| known.child == one.child) {
                Some(known) => known.clone_from(one),
                None => held.push(one.clone()),
            }
        }
        self.fixed.publish(encoded(&held), now())
    }
}

/// A publisher of one of the two transform topics.
fn voice(robot: &Robot, node: &str, topic: &str) -> Result<TopicPublisher, LiveError> {
    let type_name = "tf2_msgs/msg/TFMessage";
    let definition = Definitions::standard().full_text(type_name);
    let is_static = topic.ends_with("static");
    robot.publisher(&PublisherOptions {
        node: node.to_owned(),
        topic: topic.to_owned(),
        type_name: type_name.to_owned(),
        definition: definition.unwrap_or_default(),
        // Static transforms are kept for late joiners.
        qos: QosProfile {
            durability: if is_static {
                Durability::TransientLocal
            } else {
                Durability::Volatile
            },
            depth: if is_static { 1 } else { 100 },
            ..QosProfile::default()
        },
        // A robot does not wait for a slow subscriber.
        waits: false,
    })
}

/// `tf2_msgs/msg/TFMessage` as CDR, little endian.
fn encoded(transforms: &[StampedTransform]) -> Vec<u8> {
    let mut cdr = CdrWriter::with_capacity(transforms.len() * 120);
    cdr.length(transforms.len());
    for one in transforms {
        let (sec, nanosec) = one.stamp.to_ros2().unwrap_or((0, 0));
        cdr.int32(sec).uint32(nanosec);
        cdr.string(&one.parent).string(&one.child);
        let (t, q) = (
            one.isometry.translation.vector,
            one.isometry.rotation.coords,
        );
        cdr.float64s(&[t.x, t.y, t.z, q.x, q.y, q.z, q.w]);
    }
    cdr.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use asof_core::{Channel, Schema};
    use asof_tf::ros::{RosEncoding, tf_message};
    use nalgebra::Isometry3;

    fn one(parent: &str, child: &str, stamp: i64) -> StampedTransform {
        StampedTransform {
            stamp: stamp.into(),
            parent: parent.to_owned(),
            child: child.to_owned(),
            isometry: Isometry3::translation(stamp as f64 * 1e-9, 2.0, 3.0),
        }
    }

    fn listener() -> Listener {
        Listener::new(BufferOptions::default().conflicts(Conflicts::LastWins))
    }

    fn message(topic: &str, type_name: &str, payload: Vec<u8>) -> Message {
        let schema = Schema {
            name: type_name.to_owned(),
            ..Schema::default()
        };
        Message {
            channel: Arc::new(Channel {
                topic: topic.to_owned(),
                message_encoding: "cdr".to_owned(),
                schema: Some(schema.into()),
                ..Channel::default()
            }),
            log_time: Stamp::EPOCH,
            publish_time: Stamp::EPOCH,
            sequence: 0,
            payload: payload.into(),
        }
    }

    impl Listener {
        fn take(&self, transforms: &[StampedTransform], is_static: bool) {
            let topic = if is_static { "/tf_static" } else { "/tf" };
            let mut message = message(topic, "tf2_msgs/msg/TFMessage", encoded(transforms));
            message.log_time = transforms[0].stamp;
            self.fill(message);
        }
    }

    #[test]
    fn what_is_broadcast_is_what_is_read() {
        let sent = [
            one("map", "odom", 1_500_000_000),
            one("a", "b_link", 0),
            one("", "x", 7),
        ];
        let read = tf_message(RosEncoding::Cdr, &encoded(&sent)).expect("a message");
        assert_eq!(read, sent);
    }

    #[test]
    fn a_clock_that_is_set_back_starts_the_buffer_anew() {
        let listener = listener();
        let second = 1_000_000_000;
        listener.take(&[one("base", "laser", 0)], true);
        for at in 100..105 {
            listener.take(&[one("map", "base", at * second)], false);
        }
        // A late one is sorted in.
        listener.take(&[one("map", "base", 104 * second - second / 2)], false);
        assert_eq!(listener.stats.restarts.load(Ordering::Relaxed), 0);
        assert!(
            listener
                .buffer
                .lookup("map", "base", (101 * second).into())
                .is_ok()
        );

        // A single one may be a stray.
        for at in [3, 3, 3] {
            assert_eq!(listener.stats.restarts.load(Ordering::Relaxed), 0);
            listener.take(&[one("map", "base", at * second)], false);
        }
        assert_eq!(listener.stats.restarts.load(Ordering::Relaxed), 1);
        assert!(
            listener
                .buffer
                .lookup("map", "base", (101 * second).into())
                .is_err()
        );
        assert!(
            listener
                .buffer
                .lookup("map", "laser", (3 * second).into())
                .is_ok()
        );
        listener.take(&[one("map", "base", 4 * second)], false);
        assert_eq!(
            listener.stats.restarts.load(Ordering::Relaxed),
            1,
            "told once"
        );
    }

    #[test]
    fn a_description_and_joint_states_place_what_no_transform_does() {
        let listener = listener();
        let urdf = r#"<robot name="arm"><link name="base"/><link name="mast"/><link name="head"/>
            <joint name="fixed" type="fixed"><parent link="base"/><child link="mast"/><origin xyz="0 0 1"/></joint>
            <joint name="turn" type="prismatic"><parent link="mast"/><child link="head"/><axis xyz="1 0 0"/>
            <limit lower="-9" upper="9" effort="1" velocity="1"/></joint></robot>"#;
        let mut text = CdrWriter::with_capacity(urdf.len());
        text.string(urdf);
        listener.fill(message(
            "/robot_description",
            "std_msgs/msg/String",
            text.finish(),
        ));
        let mut state = CdrWriter::with_capacity(64);
        state.int32(5).uint32(0).string("");
        state.length(1).string("turn");
        state.float64_sequence(&[2.5]).length(0).length(0);
        listener.fill(message(
            "/joint_states",
            "sensor_msgs/msg/JointState",
            state.finish(),
        ));
        let at = Stamp::from_nanos(5_000_000_000);
        let pose = listener.buffer.lookup("base", "head", at).expect("a pose");
        assert_eq!(
            pose.translation.vector,
            nalgebra::Vector3::new(2.5, 0.0, 1.0)
        );
        assert_eq!(listener.stats.received.load(Ordering::Relaxed), 1);
        // What the robot's own transforms place is theirs.
        listener.take(&[one("base", "mast", 5_000_000_000)], false);
        let pose = listener.buffer.lookup("base", "mast", at).expect("a pose");
        assert_eq!(
            pose.translation.vector,
            nalgebra::Vector3::new(5.0, 2.0, 3.0)
        );
        listener.fill(message(
            "/robot_description",
            "std_msgs/msg/String",
            vec![1, 2],
        ));
        assert_eq!(listener.stats.refused.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_filter_holds_what_cannot_be_transformed_yet_and_counts_what_it_drops() {
        let listener = Arc::new(listener());
        let passed: Arc<Mutex<Vec<i64>>> = Arc::default();
        let noted = Arc::clone(&passed);
        let failed: Arc<Mutex<Vec<(i64, FilterFailure)>>> = Arc::default();
        let failures = Arc::clone(&failed);
        let options = FilterOptions {
            targets: vec!["map".to_owned(), "base".to_owned()],
            tolerance: Duration::ZERO,
            capacity: 2,
        };
        let filter = listener.filter(
            options,
            move |value: i64| noted.lock().push(value),
            move |value, why| failures.lock().push((value, why)),
        );
        for at in [5, 10, 15] {
            filter.push("base", at.into(), at);
        }
        assert_eq!((filter.stats().waiting, filter.stats().crowded_out), (2, 1));
        listener.take(&[one("map", "base", 0), one("map", "base", 12)], false);
        assert_eq!(*passed.lock(), [10]);
        listener.take(&[one("map", "base", 20)], false);
        assert_eq!(*passed.lock(), [10, 15]);
        filter.push("nowhere", 1.into(), 1);
        let second = 1_000_000_000;
        for at in [100, 3, 3, 3] {
            listener.take(&[one("map", "base", at * second)], false);
        }
        let stats = filter.stats();
        assert_eq!((stats.passed, stats.restarted, stats.waiting), (2, 1, 0));
        let (crowded, restarted) = (FilterFailure::CrowdedOut, FilterFailure::Restarted);
        assert_eq!(*failed.lock(), [(5, crowded), (1, restarted)]);
    }

    #[test]
    fn a_filter_waits_for_late_samples_and_for_its_tolerance() {
        let listener = Arc::new(listener());
        let passed: Arc<Mutex<Vec<i64>>> = Arc::default();
        let noted = Arc::clone(&passed);
        let options = FilterOptions {
            targets: vec!["map".to_owned()],
            tolerance: Duration::from_nanos(10),
            capacity: 10,
        };
        let filter = listener.filter(
            options,
            move |value: i64| noted.lock().push(value),
            |_, _| {},
        );
        listener.take(&[one("map", "base", 100)], false);
        filter.push("base", 50.into(), 50);
        filter.push("base", 95.into(), 95);
        assert_eq!((filter.stats().waiting, filter.stats().too_old), (2, 0));
        listener.take(&[one("map", "base", 40)], false);
        assert_eq!(*passed.lock(), [50], "a late sample has placed it");
        listener.take(&[one("map", "base", 105)], false);
        assert_eq!(
            *passed.lock(),
            [50, 95],
            "now the time after it is known too"
        );
    }

    #[test]
    fn the_clock_of_another_robot_drops_nothing_of_this_one() {
        let listener = listener();
        let filter = listener.filter(
            FilterOptions {
                targets: vec!["map".to_owned()],
                tolerance: Duration::ZERO,
                capacity: 10,
            },
            |_: i64| {},
            |_, _| {},
        );
        let second = 1_000_000_000;
        listener.take(&[one("map", "base", 50 * second)], false);
        filter.push("base", (60 * second).into(), 60);
        for at in [100, 101, 3, 3, 3] {
            let other = encoded(&[one("map", "base", at * second)]);
            let mut other = message("/robot2/tf", "tf2_msgs/msg/TFMessage", other);
            other.log_time = (at * second).into();
            listener.fill(other);
        }
        assert_eq!(listener.stats.restarts.load(Ordering::Relaxed), 1);
        let stats = filter.stats();
        assert_eq!((stats.waiting, stats.restarted), (1, 0));
    }

    #[test]
    fn a_callback_may_panic_and_ask_for_the_buffers() {
        let listener = Arc::new(listener());
        listener.take(&[one("map", "base", 0)], false);
        let (own, passed) = (Arc::clone(&listener), Arc::<Mutex<Vec<i64>>>::default());
        let noted = Arc::clone(&passed);
        // Called while a message is being loaded.
        let waiting = listener
            .buffer
            .on_transform("map", "base", 10.into(), None, move |_| {
                noted.lock().push(own.buffers.lock().len() as i64);
            });
        let noted = Arc::clone(&passed);
        let filter = listener.filter(
            FilterOptions {
                targets: vec!["map".to_owned()],
                tolerance: Duration::ZERO,
                capacity: 10,
            },
            move |value: i64| {
                noted.lock().push(value);
                assert!(value != 10, "a panic that is meant");
            },
            |_, _| {},
        );
        for value in [10, 11] {
            filter.push("base", value.into(), value);
        }
        listener.take(&[one("map", "base", 20)], false);
        assert_eq!(*passed.lock(), [1, 10, 11]);
        drop(waiting);
    }

    #[test]
    fn a_robot_in_a_namespace_whose_static_transforms_come_first_is_one() {
        let listener = listener();
        listener.take(&[one("base", "laser", 0)], true);
        let moving = encoded(&[one("map", "base", 0), one("map", "base", 10)]);
        listener.fill(message("/robot/tf", "tf2_msgs/msg/TFMessage", moving));
        assert!(listener.buffer.lookup("map", "laser", 5.into()).is_ok());
        assert_eq!(listener.buffers.lock().len(), 1);
    }

    #[test]
    fn an_object_that_is_picked_up_and_a_second_robot_are_told_apart() {
        let listener = listener();
        listener.take(&[one("table", "cup", 0), one("gripper", "cup", 10)], false);
        assert!(listener.buffer.lookup("gripper", "cup", 10.into()).is_ok());
        assert_eq!(listener.stats.refused.load(Ordering::Relaxed), 0);
        let other = encoded(&[one("table", "cup", 20)]);
        listener.fill(message("/robot2/tf", "tf2_msgs/msg/TFMessage", other));
        let newest = listener
            .buffer
            .lookup_latest("gripper", "cup")
            .expect("there");
        assert_eq!(
            newest.stamp,
            Some(10.into()),
            "the other robot has its own buffer"
        );
        let loaders = listener.loaders.lock();
        let names: Vec<&str> = loaders.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["", "/robot2"]);
    }
}
