//! A robot's transforms: listened to, and broadcast.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use asof_core::{Batch, Message, Stamp};
use asof_ros::{CdrWriter, Definitions};
use asof_tf::ros::StampedTransform;
use asof_tf::{LoaderOptions, TransformBuffer, TransformLoader, feeds_transforms};
use parking_lot::Mutex;

use crate::robot::now;
use crate::ros::{Durability, QosProfile};
use crate::{LiveError, PublisherOptions, Robot, Subscription, TopicPublisher};

/// Stamps of a frame that go back by more than this, several times in a row, mean that the robot's clock was set back.
const RESTART_AFTER: Duration = Duration::from_secs(1);

impl Robot {
    /// Listens to the robot's transforms: `/tf`, `/tf_static`, and every other topic of their type. Frames that no
    /// transform places come from the robot's description (`/robot_description`) and joint states. Keeps ten seconds
    /// of each edge.
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
        self.transforms_with(asof_tf::BufferOptions::default())
    }

    /// The same, with other options.
    pub fn transforms_with(&self, options: asof_tf::BufferOptions) -> LiveTransforms {
        let listener = Arc::new(Listener::new(TransformBuffer::with_options(options)));
        let filled = Arc::clone(&listener);
        let subscription = self.subscribe(
            |publisher| feeds_transforms(&publisher.channel),
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
/// subscriptions.
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
        let filter = Arc::new(Filter {
            buffer: self.listener.buffer.clone(),
            target: target.to_owned(),
            capacity: capacity.max(1),
            state: Mutex::new(FilterState {
                waiting: Vec::new(),
                stats: FilterStats::default(),
            }),
            callback: Box::new(callback),
        });
        let listed: Arc<dyn Poked> = Arc::<Filter<T>>::clone(&filter);
        self.listener.filters.lock().push(Arc::downgrade(&listed));
        TransformFilter(filter)
    }
}

impl Deref for LiveTransforms {
    type Target = TransformBuffer;

    fn deref(&self) -> &TransformBuffer {
        &self.listener.buffer
    }
}

struct Listener {
    buffer: TransformBuffer,
    /// Extracts transforms from messages; one message at a time.
    loader: Mutex<TransformLoader>,
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
    fn new(buffer: TransformBuffer) -> Self {
        let options = LoaderOptions {
            jump_back: Some(RESTART_AFTER),
            ..LoaderOptions::default()
        };
        Listener {
            loader: Mutex::new(TransformLoader::with_options(buffer.clone(), options)),
            buffer,
            filters: Mutex::default(),
            stats: ListenerStats::default(),
        }
    }

    fn fill(&self, message: Message) {
        let batch: Batch = std::iter::once(message).collect();
        let absorbed = self.loader.lock().absorb(&batch);
        let received = absorbed.transforms + absorbed.joints;
        self.stats.received.fetch_add(received, Ordering::Relaxed);
        for problem in &absorbed.problems {
            self.refuse(&problem.to_string());
        }
        if let Some(jump) = &absorbed.jump {
            self.stats.restarts.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("{jump}");
        }
        self.poke(absorbed.jump.is_some());
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
    target: String,
    capacity: usize,
    state: Mutex<FilterState<T>>,
    callback: Box<dyn Fn(T) + Send + Sync>,
}

struct FilterState<T> {
    waiting: Vec<Held<T>>,
    stats: FilterStats,
}

struct Held<T> {
    frame: String,
    stamp: Stamp,
    value: T,
}

impl<T: Send + 'static> TransformFilter<T> {
    /// Adds a value that was measured in `frame` at `stamp`.
    pub fn push(&self, frame: &str, stamp: Stamp, value: T) {
        let filter = &self.0;
        let mut state = filter.state.lock();
        if state.waiting.len() >= filter.capacity {
            state.waiting.remove(0);
            state.stats.crowded_out += 1;
        }
        state.waiting.push(Held {
            frame: frame.to_owned(),
            stamp,
            value,
        });
        drop(state);
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

impl<T: Send + 'static> Poked for Filter<T> {
    fn poke(&self, is_restart: bool) {
        let mut ready = Vec::new();
        let mut state = self.state.lock();
        if is_restart {
            state.stats.restarted += state.waiting.len() as u64;
            state.waiting.clear();
            return;
        }
        let mut at = 0;
        while at < state.waiting.len() {
            let held = &state.waiting[at];
            let (target, frame) = (self.target.as_str(), held.frame.as_str());
            match self.buffer.lookup(target, frame, held.stamp) {
                Ok(_) => {
                    ready.push(state.waiting.remove(at).value);
                    state.stats.passed += 1;
                }
                Err(error) if error.kind() == "extrapolation_past" => {
                    state.waiting.remove(at);
                    state.stats.too_old += 1;
                }
                Err(_) => at += 1,
            }
        }
        drop(state);
        // Without the lock: the callback may push again.
        for value in ready {
            (self.callback)(value);
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
        Listener::new(TransformBuffer::new())
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
            let payload = encoded(transforms);
            self.fill(message(topic, "tf2_msgs/msg/TFMessage", payload));
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
        let filter = Arc::new(Filter {
            buffer: listener.buffer.clone(),
            target: "map".to_owned(),
            capacity: 2,
            state: Mutex::new(FilterState {
                waiting: Vec::new(),
                stats: FilterStats::default(),
            }),
            callback: Box::new(move |value: i64| noted.lock().push(value)),
        });
        let listed: Arc<dyn Poked> = Arc::<Filter<i64>>::clone(&filter);
        listener.filters.lock().push(Arc::downgrade(&listed));
        let filter = TransformFilter(filter);
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
    }
}
