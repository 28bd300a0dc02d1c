//! Loads transforms from messages of a recording or a running robot.

use std::borrow::Cow;
use std::collections::HashMap;
#[cfg(feature = "urdf")]
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use asof_core::{Batch, Channel, MessageRef, Problem, ProblemKind, Stamp, Summary};
use nalgebra::Isometry3;

use crate::buffer::TransformBuffer;
use crate::error::UpdateError;
use crate::monitor::TransformMonitor;
#[cfg(feature = "urdf")]
use crate::namespace::namespace;
#[cfg(feature = "urdf")]
use crate::ros::JointPositions;
use crate::ros::{self, RosEncoding, StampedTransform};
#[cfg(feature = "urdf")]
use crate::urdf::RobotModel;

/// Loads transforms from batches of messages into a buffer: for a part of a recording, or a running robot.
/// [`TransformBuffer::from_source`] reads a complete recording.
///
/// Transforms are found by the type of their channel, see [`has_transforms`]. If a robot publishes its description
/// (`std_msgs/String` on a topic that ends in `robot_description`) and its joint states (`sensor_msgs/JointState`),
/// its moving and fixed joints are edges too; [`transform_topics`] lists all such topics. A frame with a transform of
/// its own is never placed by the description.
///
/// ```no_run
/// use asof_core::{Source, Query};
/// use asof_tf::{TransformBuffer, TransformLoader, transform_topics};
///
/// # fn follow(source: &dyn Source) -> Result<(), asof_core::SourceError> {
/// let mut loader = TransformLoader::new(TransformBuffer::new());
/// for batch in source.read(&Query::topics(transform_topics(&source.summary())))? {
///     let absorbed = loader.absorb(&batch?);
///     if let Some(jump) = absorbed.jump {
///         eprintln!("{jump}");
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct TransformLoader {
    buffer: TransformBuffer,
    options: LoaderOptions,
    /// By topic and text: the first of its kind and the count.
    problems: HashMap<(String, String), (Problem, u64)>,
    late: Late,
    /// Before the names of all frames, with a slash after it.
    prefix: String,
    /// Channels by their address, and their authorities.
    authorities: HashMap<usize, (Arc<Channel>, u32)>,
    /// Frames placed by transforms, and those placed by a robot's description.
    placed: HashMap<String, Placed>,
    /// How many are placed when long gone ones are removed next.
    tidy_at: usize,
    #[cfg(feature = "urdf")]
    jointed: HashSet<String>,
    #[cfg(feature = "urdf")]
    robots: Vec<(String, RobotModel)>,
    clocks: HashMap<String, Clock>,
    /// The newest stamp of all edges, and how far it was from its log time.
    newest: Option<(Stamp, i64)>,
    monitor: Option<TransformMonitor>,
    counts: Absorbed,
    #[cfg(feature = "decode")]
    decoded: crate::decoded::Decoded,
}

/// Options of a [`TransformLoader`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoaderOptions {
    /// What happens when the clock of the transforms jumps back: nothing if `None`, as is right for a recording; else
    /// the buffer is [cleared](TransformBuffer::clear) once three samples in a row of one edge are older than its
    /// newest by more than this. One that is ahead of all others by more than this is refused, and counts as a problem,
    /// until three of its edge have been in a row: one odd stamp moves nothing out of the buffer.
    pub jump_back: Option<Duration>,
    /// Frames that had no transform for this long are removed when three quarters of
    /// [`BufferOptions::max_frames`](crate::BufferOptions::max_frames) are there; never if `None`.
    pub forget_after: Option<Duration>,
    /// Whether rates, delays and gaps are recorded: see [`TransformLoader::monitor`].
    pub monitor: bool,
}

/// The result of a batch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Absorbed {
    /// The number of transforms in it.
    pub transforms: u64,
    /// The number of joint positions converted to transforms.
    pub joints: u64,
    /// The clock jumped back and the buffer was cleared.
    pub jump: Option<ClockJump>,
    /// Frames that had another parent before; each is told once, when it first changes its parent.
    pub moved: Vec<ParentChange>,
    /// What could not be used: one problem per kind and edge, with a count.
    pub problems: Vec<Problem>,
}

/// A frame that changed its parent, as an object does that is picked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentChange {
    /// The frame.
    pub child: String,
    /// Its parent before.
    pub from: String,
    /// Its parent since.
    pub to: String,
}

impl std::fmt::Display for ParentChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ParentChange { child, from, to } = self;
        write!(
            f,
            "frame '{child}' changes its parent from '{from}' to '{to}': each is valid for the times of its samples"
        )
    }
}

/// The parent of a frame that transforms place.
struct Placed {
    parent: String,
    has_moved: bool,
}

/// A clock that jumped back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockJump {
    /// The namespace of the robot whose clock it is, of several robots; else empty.
    pub namespace: String,
    /// The child frame of the edge on which it was seen.
    pub child: String,
    /// The newest stamp before.
    pub from: Stamp,
    /// The stamp that it jumped back to.
    pub to: Stamp,
}

impl std::fmt::Display for ClockJump {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the clock of the transforms jumped back from {} to {} (seen on '{}'): all samples were dropped",
            self.from.as_seconds_text(),
            self.to.as_seconds_text(),
            self.child
        )
    }
}

/// Samples of an edge that came too late to append: sorted in once, at the end of a batch.
type Late = HashMap<(String, String), Vec<(Stamp, Isometry3<f64>)>>;

/// The state of an edge's clock.
struct Clock {
    newest: Stamp,
    /// The stamp less the log time, of the newest.
    offset: i64,
    /// Consecutive samples far older than the newest.
    old_in_a_row: u32,
    /// Consecutive samples far ahead of all others.
    ahead_in_a_row: u32,
}

/// Consecutive old samples, or such that are ahead, that make a clock jump: a single one may be an outlier.
const JUMP_AFTER: u32 = 3;

/// The most channels whose authorities are remembered.
const MAX_CHANNELS: usize = 1_024;

/// The most edges whose clocks are watched.
const MAX_CLOCKS: usize = 1 << 16;

/// Whether the messages of a channel are transforms, by its type: `tf2_msgs/TFMessage` as ROS 1 and 2 spell
/// it, `tf/tfMessage`, and Foxglove's `FrameTransform` and `FrameTransforms` in every encoding.
pub fn has_transforms(channel: &Channel) -> bool {
    matches!(Kind::of(channel), Some(Kind::Ros(_) | Kind::Schema))
}

/// Whether a [`TransformLoader`] may use the messages of a channel: it [has transforms](has_transforms), a robot's
/// description, or joint states. For choosing channels before all of them are known; [`transform_topics`] leaves out
/// joint states without a description, which place nothing.
pub fn feeds_transforms(channel: &Channel) -> bool {
    Kind::of(channel).is_some()
}

/// The names of the topics that a [`TransformLoader`] can use: those that [have transforms](has_transforms), and, of
/// a robot with a description, the description and its joint states. Joint states alone place nothing.
pub fn transform_topics(summary: &Summary) -> Vec<String> {
    let kinds = || {
        let channels = summary.channels.iter().map(|entry| &entry.channel);
        channels.filter_map(|channel| Some((channel, Kind::of(channel)?)))
    };
    let is_described = kinds().any(|(_, kind)| matches!(kind, Kind::Description(_)));
    let is_used = |kind| is_described || matches!(kind, Kind::Ros(_) | Kind::Schema);
    let used = kinds().filter(|(_, kind)| is_used(*kind));
    let mut topics: Vec<String> = used.map(|(channel, _)| channel.topic.clone()).collect();
    topics.sort();
    topics.dedup();
    topics
}

/// How the messages of a channel are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `TFMessage` in ROS's encoding: its layout is known, and many recordings have no schema for it.
    Ros(RosEncoding),
    /// Transforms of any other type, by schema.
    Schema,
    /// Positions of joints.
    Joints(RosEncoding),
    /// A robot's description.
    Description(RosEncoding),
}

impl Kind {
    /// `None` for a channel that has nothing to do with transforms.
    pub(crate) fn of(channel: &Channel) -> Option<Kind> {
        // `pkg/msg/Type`, `pkg/Type`, `pkg.Type`, `pkg::msg::dds_::Type_`
        let mut parts = channel
            .type_name()
            .split(['/', '.', ':'])
            .filter(|part| !part.is_empty());
        let package = parts.next()?;
        let name = parts.next_back()?;
        // No encoding given: ROS 2's type names have three parts, ROS 1's two.
        let ros = match channel.message_encoding.as_str() {
            "cdr" => Some(RosEncoding::Cdr),
            "" if parts.next().is_some() => Some(RosEncoding::Cdr),
            "ros1" | "" => Some(RosEncoding::Ros1),
            _ => None,
        };
        match (package, name.strip_suffix('_').unwrap_or(name)) {
            ("tf2_msgs", "TFMessage") | ("tf", "tfMessage") => {
                Some(ros.map_or(Kind::Schema, Kind::Ros))
            }
            ("sensor_msgs", "JointState") => ros.map(Kind::Joints),
            ("std_msgs", "String") if last_part(&channel.topic) == "robot_description" => {
                ros.map(Kind::Description)
            }
            // A lone TransformStamped is a measurement, not part of the tree. tf2 does not use it, and neither does
            // this buffer.
            ("geometry_msgs", _) => None,
            (_, name) => is_transform(channel.type_name(), name).then_some(Kind::Schema),
        }
    }
}

/// Whether messages of a type are transforms according to asof-decode.
#[cfg(feature = "decode")]
fn is_transform(type_name: &str, _: &str) -> bool {
    asof_decode::Archetype::of(type_name).is_some_and(|archetype| archetype.name == "Transform")
}

/// Without asof-decode, Foxglove's types are recognized by name, to report that they are not decoded.
#[cfg(not(feature = "decode"))]
fn is_transform(_: &str, name: &str) -> bool {
    matches!(name, "FrameTransform" | "FrameTransforms")
}

impl TransformLoader {
    /// Creates a loader that fills a buffer.
    pub fn new(buffer: TransformBuffer) -> Self {
        TransformLoader::with_options(buffer, LoaderOptions::default())
    }

    /// The same with options.
    pub fn with_options(buffer: TransformBuffer, options: LoaderOptions) -> Self {
        TransformLoader {
            buffer,
            options,
            problems: HashMap::new(),
            late: Late::new(),
            prefix: String::new(),
            authorities: HashMap::new(),
            placed: HashMap::new(),
            tidy_at: 0,
            #[cfg(feature = "urdf")]
            jointed: HashSet::new(),
            #[cfg(feature = "urdf")]
            robots: Vec::new(),
            clocks: HashMap::new(),
            newest: None,
            monitor: options.monitor.then(TransformMonitor::new),
            counts: Absorbed::default(),
            #[cfg(feature = "decode")]
            decoded: crate::decoded::Decoded::new(),
        }
    }

    /// The same with this before the names of all frames: `robot1` makes `robot1/base_link` of `base_link`, so that several
    /// robots can share a buffer. Names that begin with it already stay.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str) -> Self {
        self.prefix = match prefix.trim_matches('/') {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        self
    }

    /// The buffer that it fills.
    pub fn buffer(&self) -> &TransformBuffer {
        &self.buffer
    }

    /// Rates, delays and gaps of every edge so far, if enabled in the options.
    pub fn monitor(&self) -> Option<&TransformMonitor> {
        self.monitor.as_ref()
    }

    /// The topics with robot descriptions.
    #[cfg(feature = "urdf")]
    pub fn robots(&self) -> impl Iterator<Item = &str> {
        self.robots.iter().map(|(topic, _)| topic.as_str())
    }

    /// Loads the transforms of a batch.
    pub fn absorb(&mut self, batch: &Batch) -> Absorbed {
        self.take(batch);
        self.finish()
    }

    /// The same without the final step: late samples are set aside, problems are not reported yet.
    pub(crate) fn take(&mut self, batch: &Batch) {
        // Consecutive messages of one channel are decoded together.
        let mut run: Vec<MessageRef<'_>> = Vec::new();
        for message in batch.iter() {
            // Another channel may carry the same topic with another type.
            let Some(kind) = Kind::of(message.channel) else {
                continue;
            };
            let is_other = |first: &MessageRef<'_>| !Arc::ptr_eq(first.channel, message.channel);
            if run.first().is_some_and(is_other) {
                self.run(&std::mem::take(&mut run));
            }
            match kind {
                Kind::Ros(encoding) => match ros::tf_message(encoding, message.payload) {
                    Ok(transforms) => {
                        self.store(message.channel, message.log_time, transforms);
                    }
                    Err(error) => self.undecodable(message.channel, &error.to_string()),
                },
                Kind::Schema => run.push(message),
                Kind::Joints(encoding) => self.joints(encoding, &message),
                Kind::Description(encoding) => self.describe(encoding, &message),
            }
        }
        self.run(&run);
    }

    #[cfg(feature = "decode")]
    fn run(&mut self, run: &[MessageRef<'_>]) {
        let Some(last) = run.last() else { return };
        let taken = self.decoded.take(last.channel, run);
        for failure in taken.failures {
            self.undecodable(last.channel, &failure);
        }
        self.store(last.channel, last.log_time, taken.transforms);
    }

    #[cfg(not(feature = "decode"))]
    fn run(&mut self, run: &[MessageRef<'_>]) {
        for message in run {
            let kind = message.channel.type_name();
            let text =
                format!("{kind} cannot be decoded: asof-tf was built without its feature `decode`");
            self.undecodable(message.channel, &text);
        }
    }

    fn store(&mut self, channel: &Arc<Channel>, logged: Stamp, transforms: Vec<StampedTransform>) {
        let is_static = last_part(&channel.topic) == "tf_static";
        let authority = self.authority_of(channel);
        for mut transform in transforms {
            self.counts.transforms += 1;
            if let Some(monitor) = &mut self.monitor {
                monitor.note(&transform, logged, is_static, &channel.topic);
            }
            if !self.prefix.is_empty() {
                transform.parent = prefixed(&self.prefix, &transform.parent).into_owned();
                transform.child = prefixed(&self.prefix, &transform.child).into_owned();
            }
            let (parent, child) = (transform.parent, transform.child);
            if !is_static && !self.is_timely(&child, transform.stamp, logged) {
                self.odd(&channel.topic, (&parent, &child), transform.stamp);
                continue;
            }
            self.take_over(&parent, &child);
            let stored = if is_static {
                self.flush(&child);
                self.buffer
                    .update_static(&parent, &child, transform.isometry)
            } else {
                self.append(&parent, &child, transform.stamp, transform.isometry)
            };
            match stored {
                Ok(()) => {
                    self.buffer.note_authority(&child, authority);
                    self.note_parent(&parent, &child);
                }
                Err(error) => self.refused(&channel.topic, (&parent, &child), &error),
            }
        }
    }

    fn authority_of(&mut self, channel: &Arc<Channel>) -> u32 {
        let address = Arc::as_ptr(channel) as usize;
        if let Some((_, authority)) = self.authorities.get(&address) {
            return *authority;
        }
        let authority = self.buffer.authority(&authority_of(channel));
        if self.authorities.len() >= MAX_CHANNELS {
            self.authorities.clear();
        }
        // The channel is kept, so that its address is not reused.
        let known = (Arc::clone(channel), authority);
        self.authorities.insert(address, known);
        authority
    }

    /// Transforms take precedence: what the robot's description stored for the frame is dropped.
    fn take_over(&mut self, parent: &str, child: &str) {
        self.forget_old();
        let is_full = self.placed.len() >= self.buffer.options().max_frames;
        if is_full || self.placed.contains_key(child) {
            return;
        }
        let placed = Placed {
            parent: parent.to_owned(),
            has_moved: false,
        };
        self.placed.insert(child.to_owned(), placed);
        #[cfg(feature = "urdf")]
        if self.jointed.remove(child) {
            self.buffer.open_edge(child);
        }
    }

    /// Tells once that a frame has another parent.
    fn note_parent(&mut self, parent: &str, child: &str) {
        let Some(placed) = self.placed.get_mut(child) else {
            return;
        };
        if placed.parent != parent && !placed.has_moved {
            placed.has_moved = true;
            self.counts.moved.push(ParentChange {
                child: child.to_owned(),
                from: placed.parent.clone(),
                to: parent.to_owned(),
            });
        }
    }

    /// Removes frames that are long gone, if many are there.
    fn forget_old(&mut self) {
        let most = self.buffer.options().max_frames;
        let (Some(after), Some((newest, _))) = (self.options.forget_after, self.newest) else {
            return;
        };
        if self.placed.len() < (most / 4 * 3).max(self.tidy_at) {
            return;
        }
        let after = i64::try_from(after.as_nanos()).unwrap_or(i64::MAX);
        self.buffer.remove_older(newest.plus_nanos(-after));
        let buffer = &self.buffer;
        self.placed.retain(|child, _| buffer.find(child).is_some());
        self.clocks.retain(|child, _| buffer.find(child).is_some());
        // Where nothing could be removed, not for each of the next.
        self.tidy_at = self.placed.len() + most / 16;
    }

    /// Usually in order; late samples are set aside, so that loading is never quadratic.
    fn append(
        &mut self,
        parent: &str,
        child: &str,
        stamp: Stamp,
        isometry: Isometry3<f64>,
    ) -> Result<(), UpdateError> {
        let newest = self.buffer.newest_of(parent, child);
        if newest.is_some_and(|newest| stamp <= newest) {
            // Invalid poses are reported now, and the edge exists.
            crate::pose::Pose::checked(&isometry)
                .map_err(|bad| self.buffer.bad_pose(parent, child, bad))?;
            let edge = (parent.to_owned(), child.to_owned());
            self.late.entry(edge).or_default().push((stamp, isometry));
            return Ok(());
        }
        self.buffer.update(parent, child, stamp, isometry)
    }

    /// Sorts in the late samples of a frame before it becomes static.
    fn flush(&mut self, child: &str) {
        if self.late.is_empty() {
            return;
        }
        let late = std::mem::take(&mut self.late);
        let (due, others) = late.into_iter().partition(|((_, of), _)| of == child);
        self.late = others;
        self.extend(due);
    }

    fn extend(&mut self, late: Late) {
        for ((parent, child), samples) in late {
            if let Err(error) = self.buffer.extend_edge(&parent, &child, samples) {
                self.refused("", (&parent, &child), &error);
            }
        }
    }

    /// Whether a sample may be stored. Clears the buffer if the clock has jumped back.
    fn is_timely(&mut self, child: &str, stamp: Stamp, logged: Stamp) -> bool {
        let Some(limit) = self.options.jump_back else {
            self.newest = self.newest.max(Some((stamp, 0)));
            return true;
        };
        let limit = i64::try_from(limit.as_nanos()).unwrap_or(i64::MAX);
        let offset = stamp.since(logged);
        if !self.clocks.contains_key(child) {
            if self.clocks.len() == MAX_CLOCKS {
                return true;
            }
            // A new edge is expected to have the clock of the others.
            let clock = Clock {
                newest: self.newest.map_or(stamp, |(newest, _)| newest.min(stamp)),
                offset: self.newest.map_or(offset, |(_, offset)| offset),
                old_in_a_row: 0,
                ahead_in_a_row: 0,
            };
            self.clocks.insert(child.to_owned(), clock);
        }
        let Some(clock) = self.clocks.get_mut(child) else {
            return true;
        };
        // Ahead of its own clock, which went on as the log's did, and of all other edges.
        let is_ahead = offset.saturating_sub(clock.offset) > limit
            && (self.newest).is_some_and(|(newest, _)| stamp.since(newest) > limit);
        if is_ahead && clock.ahead_in_a_row + 1 < JUMP_AFTER {
            clock.ahead_in_a_row += 1;
            return false;
        }
        clock.ahead_in_a_row = 0;
        if clock.newest.since(stamp) <= limit {
            if stamp >= clock.newest {
                (clock.newest, clock.offset) = (stamp, offset);
            }
            clock.old_in_a_row = 0;
            self.newest = self.newest.max(Some((stamp, offset)));
            return true;
        }
        clock.old_in_a_row += 1;
        if clock.old_in_a_row < JUMP_AFTER {
            return true;
        }
        self.counts.jump = Some(ClockJump {
            namespace: String::new(),
            child: child.to_owned(),
            from: clock.newest,
            to: stamp,
        });
        self.buffer.clear();
        self.late.clear();
        self.clocks.clear();
        self.newest = None;
        if let Some(monitor) = &mut self.monitor {
            monitor.clear();
        }
        true
    }

    fn odd(&mut self, topic: &str, (parent, child): (&str, &str), stamp: Stamp) {
        let text = format!(
            "edge '{parent}' -> '{child}': the stamp {} is far ahead of all other transforms; it was ignored",
            stamp.as_seconds_text()
        );
        self.problem(topic, format!("{parent} {child} odd"), text);
    }

    #[cfg(feature = "urdf")]
    fn describe(&mut self, encoding: RosEncoding, message: &MessageRef<'_>) {
        let topic = &message.channel.topic;
        let robot = ros::text_message(encoding, message.payload)
            .map_err(|error| error.to_string())
            .and_then(|text| RobotModel::from_urdf(&text).map_err(|error| error.to_string()));
        let robot = match robot {
            Ok(robot) => robot.renamed(|frame| prefixed(&self.prefix, frame).into_owned()),
            Err(error) => return self.undecodable(message.channel, &error),
        };
        let placed = &self.placed;
        for (child, refused) in robot.place_fixed(&self.buffer, |child| !placed.contains_key(child))
        {
            self.jointed.insert(child.clone());
            if let Some(error) = refused {
                self.refused(topic, ("", &child), &error);
            }
        }
        self.robots.retain(|(of, _)| of != topic);
        self.robots.push((topic.clone(), robot));
    }

    #[cfg(feature = "urdf")]
    fn joints(&mut self, encoding: RosEncoding, message: &MessageRef<'_>) {
        let topic = &message.channel.topic;
        let state: JointPositions = match ros::joint_state(encoding, message.payload) {
            Ok(state) => state,
            Err(error) => return self.undecodable(message.channel, &error.to_string()),
        };
        // The robot of the same namespace, or else the only one.
        let of_namespace = |(of, _): &&(String, RobotModel)| namespace(of) == namespace(topic);
        let only = || self.robots.first().filter(|_| self.robots.len() == 1);
        let Some((_, robot)) = self.robots.iter().find(of_namespace).or_else(only) else {
            return;
        };
        let placed = &self.placed;
        let moved = robot.place_joints(&self.buffer, &state, |child| !placed.contains_key(child));
        let mut refused = Vec::new();
        for (child, error) in moved {
            match error {
                // Joint states can be late.
                Some(UpdateError::TooOld { .. }) => {}
                Some(error) => refused.push((child.to_owned(), error)),
                None => {
                    self.counts.joints += 1;
                    if !self.jointed.contains(child) {
                        self.jointed.insert(child.to_owned());
                    }
                }
            }
        }
        for (child, error) in refused {
            self.refused(topic, ("", &child), &error);
        }
    }

    #[cfg(not(feature = "urdf"))]
    #[allow(clippy::unused_self)]
    fn describe(&mut self, _encoding: RosEncoding, _message: &MessageRef<'_>) {}

    #[cfg(not(feature = "urdf"))]
    #[allow(clippy::unused_self)]
    fn joints(&mut self, _encoding: RosEncoding, _message: &MessageRef<'_>) {}

    fn undecodable(&mut self, channel: &Channel, reason: &str) {
        self.problem(&channel.topic, "undecodable".into(), reason.to_owned());
    }

    fn refused(&mut self, topic: &str, (parent, child): (&str, &str), error: &UpdateError) {
        // A problem is reported once per edge and kind, whatever its numbers.
        let sort = format!("{parent} {child} {:?}", std::mem::discriminant(error));
        self.problem(topic, sort, error.to_string());
    }

    fn problem(&mut self, topic: &str, sort: String, message: String) {
        let problem = Problem {
            kind: ProblemKind::BadRecord,
            offset: None,
            topic: Some(topic.to_owned()),
            message,
        };
        let entry = self.problems.entry((topic.to_owned(), sort));
        entry.or_insert((problem, 0)).1 += 1;
    }

    /// Sorts in late samples and returns the result since the last call.
    pub(crate) fn finish(&mut self) -> Absorbed {
        let late = std::mem::take(&mut self.late);
        self.extend(late);
        let mut absorbed = std::mem::take(&mut self.counts);
        absorbed.problems = std::mem::take(&mut self.problems)
            .into_values()
            .map(|(mut problem, count)| {
                if count > 1 {
                    problem.message = format!("{} ({count} times)", problem.message);
                }
                problem
            })
            .collect();
        absorbed
            .problems
            .sort_by(|a, b| (&a.topic, &a.message).cmp(&(&b.topic, &b.message)));
        absorbed
    }
}

/// The authority of a channel: its topic, and its node if the recording has it.
fn authority_of(channel: &Channel) -> String {
    match channel.metadata.get("callerid") {
        Some(node) => format!("{node} on {}", channel.topic),
        None => channel.topic.clone(),
    }
}

/// A frame's name with a prefix, which ends in a slash.
fn prefixed<'a>(prefix: &str, frame: &'a str) -> Cow<'a, str> {
    let bare = frame.strip_prefix('/').unwrap_or(frame);
    if prefix.is_empty() || bare.starts_with(prefix) {
        return Cow::Borrowed(frame);
    }
    Cow::Owned(format!("{prefix}{bare}"))
}

pub(crate) fn last_part(topic: &str) -> &str {
    topic.rsplit('/').next().unwrap_or(topic)
}
