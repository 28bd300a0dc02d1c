//! The poses of frames at any time of a source, in bounded memory.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use asof_blocks::{BlockCache, HeadClass};
use asof_core::{Follow, Followed, Query, Source, Stamp, Summary, TimeRange, Topics};
use asof_tf::{
    BufferOptions, Conflicts, Extrapolation, LoaderOptions, Namespaces, TransformBuffer,
    TransformLoader, transform_topics,
};
use nalgebra::Isometry3;
use serde::Serialize;
use serde_json::{Value, json};

/// The frames of a source: usually of one robot, of several where topics have prefixes, or where there are transforms in
/// several namespaces.
///
/// Frames of several robots have the prefix in their names. Roots of the same name are the same place: two recordings
/// of one world are shown in one scene.
pub(crate) struct Frames {
    robots: Vec<RobotFrames>,
    memory: Arc<Memory>,
}

/// The memory of a recording: transforms have up to half of it, and blocks the rest.
#[derive(Default)]
struct Memory {
    most: AtomicU64,
    /// Bytes of transforms.
    held: AtomicU64,
    /// Buffers of transforms that were dropped to make room.
    evicted: AtomicU64,
}

/// The transforms of a robot, including those from its description and joint states.
///
/// A recording with few transforms is read once. For one with many, each buffer holds an interval and the time shortly
/// before it; a few buffers are kept. A source that grows has one buffer, which starts over when the clock is set
/// back.
struct RobotFrames {
    robot: RobotDescription,
    /// Whether its prefix is a namespace of the source's, rather than given.
    is_by_namespace: bool,
    cache: BlockCache,
    /// Its topics of transforms, where no others can come.
    topics: Option<Vec<String>>,
    /// Whether one buffer holds all transforms.
    is_small: bool,
    buffers: Mutex<Vec<IntervalBuffer>>,
    memory: Arc<Memory>,
    live: Option<Mutex<LiveFrames>>,
}

/// A buffer for an interval.
struct IntervalBuffer {
    key: i64,
    buffer: Arc<TransformBuffer>,
    bytes: u64,
}

/// A robot's part of a source's topics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RobotDescription {
    /// The prefix of its topics: `/before`, or nothing.
    pub prefix: String,
    /// How far its clock is behind the log's, in nanoseconds: its messages are shown later by this much.
    pub behind: i64,
}

impl RobotDescription {
    fn owns(&self, topic: &str) -> bool {
        let rest = topic.strip_prefix(&self.prefix);
        rest.is_some_and(|rest| self.prefix.is_empty() || rest.starts_with('/'))
    }

    /// Its topics of transforms, sorted.
    fn topics(&self, summary: &Summary, namespaces: Option<&Namespaces>) -> Vec<String> {
        let mut topics = transform_topics(summary);
        topics.retain(|topic| match namespaces {
            Some(all) => all.of_topic(topic).contains(&self.prefix.as_str()),
            None => self.owns(topic),
        });
        topics
    }

    /// The unique name of one of its frames.
    fn named(&self, frame: &str) -> String {
        match self.prefix.trim_start_matches('/') {
            "" => frame.to_owned(),
            prefix => format!("{prefix}/{frame}"),
        }
    }
}

struct LiveFrames {
    loader: TransformLoader,
    /// What its buffer keeps.
    options: BufferOptions,
    /// The bytes of its buffer that are counted.
    bytes: u64,
    /// The topics that are followed.
    topics: Vec<String>,
    follow: Option<Box<dyn Follow>>,
    /// How far the transforms' clock is behind the log's, in nanoseconds; zero where they agree.
    behind: i64,
    /// How often the clock was set back.
    restarts: u64,
}

/// A pose as `[x, y, z, qx, qy, qz, qw]`.
pub(crate) type Pose = [f64; 7];

/// An edge of the tree, and the child's pose in its parent.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct EdgeAt {
    pub parent: String,
    pub child: String,
    #[serde(rename = "static")]
    pub is_static: bool,
    pub pose: Option<Pose>,
    /// Samples per second, of what has been read.
    pub hz: f64,
}

/// A recording is read at once and kept if it has at most this many transform messages.
const MAX_WHOLE_MESSAGES: u64 = 50_000;
/// A recording is read at once and kept if it has at most this many bytes.
const SMALL_BYTES: u64 = 32 << 20;
/// The interval that a buffer covers, in nanoseconds.
const BUFFER_SPAN_NANOS: i64 = 10_000_000_000;
/// The time before its interval that a buffer also holds, in nanoseconds.
const BUFFER_BEFORE_NANOS: i64 = 10_000_000_000;
/// The time after its interval that a buffer also holds, for interpolation, in nanoseconds.
const BUFFER_AFTER_NANOS: i64 = 1_000_000_000;
const MOST_BUFFERS: usize = 6;
/// The most namespaces that are shown as a robot each.
const MOST_ROBOTS: usize = 256;
/// The time before the requested one that a quick answer covers, in nanoseconds.
const NEAR_BEFORE_NANOS: i64 = 1_000_000_000;
/// The time after the requested one that a quick answer covers, in nanoseconds.
const NEAR_AFTER_NANOS: i64 = 200_000_000;
/// The most messages of a static topic in a quick answer: they may be anywhere in a recording.
const NEAR_STATIC_MESSAGES: u64 = 64;
/// About the bytes of a frame in a buffer, besides its samples.
const FRAME_BYTES: u64 = 512;
/// About the bytes of an edge: in the buffer's list, in the answer, and as text.
const EDGE_BYTES: usize = 400;
/// Clocks that differ by less than this, in nanoseconds, are the same clock.
const MAX_CLOCK_DIFFERENCE_NANOS: u64 = 2_000_000_000;
/// Frames without a transform for this long make room for others, when there are very many.
const FORGET_AFTER: Duration = Duration::from_mins(5);
/// Transforms that are older than the newest by more than this are from before a jump of the clock.
const JUMP_BACK: Duration = Duration::from_secs(10);

impl Frames {
    /// `most` bytes are for the blocks of the cache and the transforms together.
    pub fn new(cache: &BlockCache, robots: &[RobotDescription], most: u64) -> Self {
        let memory = Arc::new(Memory {
            most: AtomicU64::new(most),
            ..Memory::default()
        });
        let named = |prefix: String| RobotDescription { prefix, behind: 0 };
        let namespaces = Namespaces::of(&cache.summary());
        let names = namespaces.names();
        let is_by_namespace = robots.is_empty() && (2..=MOST_ROBOTS).contains(&names.len());
        if robots.is_empty() && names.len() > MOST_ROBOTS {
            let count = names.len();
            tracing::warn!(
                "the transforms of {count} namespaces are shown as those of one robot: at most {MOST_ROBOTS} are told apart"
            );
        }
        let robots = match robots {
            [] if is_by_namespace => names.into_iter().map(named).collect(),
            [] => vec![RobotDescription::default()],
            robots => robots.to_vec(),
        };
        let share = most / 2 / robots.len().max(1) as u64;
        let robots = robots.into_iter().map(|robot| {
            let namespaces = is_by_namespace.then_some(&namespaces);
            RobotFrames::new(cache, robot, namespaces, share, &memory)
        });
        Frames {
            robots: robots.collect(),
            memory,
        }
    }

    /// Gives this many bytes to the transforms and to the blocks of the cache together. The least recently used transforms are
    /// dropped where there are more than half of it.
    pub fn set_memory(&self, most: u64) {
        self.memory.most.store(most, Ordering::Relaxed);
        self.robots.iter().for_each(|robot| robot.evict(0));
    }

    /// The transforms in memory: bytes, and dropped buffers.
    pub fn status(&self) -> Value {
        json!({
            "restarts": self.restarts(),
            "bytes": self.memory.held.load(Ordering::Relaxed),
            "evicted": self.memory.evicted.load(Ordering::Relaxed),
        })
    }

    /// The topics of transforms.
    pub fn topics(&self) -> Vec<String> {
        let mut topics: Vec<String> = self.robots.iter().flat_map(RobotFrames::topics).collect();
        topics.sort();
        topics.dedup();
        topics
    }

    /// How often the frames have started over because the source's clock was set back.
    pub fn restarts(&self) -> u64 {
        self.robots.iter().map(RobotFrames::restarts).sum()
    }

    /// Adds the transforms that have come since. Static transforms are sent once: they must not be evicted unread.
    pub fn catch_up(&self) {
        self.robots.iter().for_each(RobotFrames::catch_up);
    }

    /// The transforms for a time. An edge without a sample at that time has the nearest.
    pub fn at(&self, at: Stamp) -> Buffers<'_> {
        self.buffers(at, |robot| robot.buffer(at))
    }

    /// The transforms with samples right around `at`: for a quick answer, before the complete one of [`at`](Self::at).
    /// `None` where the complete one is in memory.
    pub fn near(&self, at: Stamp) -> Option<Buffers<'_>> {
        if self
            .robots
            .iter()
            .all(|robot| robot.is_small || robot.holds(at))
        {
            return None;
        }
        Some(self.buffers(at, |robot| robot.near(at)))
    }

    fn buffers(
        &self,
        at: Stamp,
        buffer_of: impl Fn(&RobotFrames) -> (Arc<TransformBuffer>, i64),
    ) -> Buffers<'_> {
        let robots = self.robots.iter();
        let robots = robots.map(|robot| (&robot.robot, buffer_of(robot)));
        Buffers {
            at,
            robots: robots.collect(),
        }
    }

    /// The unique name of a frame in a message on a topic.
    pub fn named(&self, topic: &str, frame: &str) -> String {
        match self.of(topic) {
            Some(robot) if !frame.is_empty() => robot.robot.named(frame),
            _ => frame.to_owned(),
        }
    }

    /// The root of the tree that has `frame`, as named in a message on `topic`, and the pose of `frame` in it at
    /// `stamp`; `logged` is the message's log time.
    pub fn in_root(
        &self,
        topic: &str,
        frame: &str,
        stamp: Stamp,
        logged: Stamp,
    ) -> Option<(String, Pose)> {
        let own = self.of(topic)?;
        let (root, pose) = own.in_root(frame, stamp, logged)?;
        // The first robot with this root is at the place of all others.
        let first = self.robots.iter().find(|robot| {
            std::ptr::eq(*robot, own) || roots_of(&robot.at(logged)).contains(&root.as_str())
        });
        Some((first.unwrap_or(own).robot.named(&root), pose))
    }

    fn of(&self, topic: &str) -> Option<&RobotFrames> {
        let owners = self.robots.iter().filter(|robot| robot.robot.owns(topic));
        owners.max_by_key(|robot| robot.robot.prefix.len())
    }
}

/// The transforms of each robot for a time.
pub(crate) struct Buffers<'a> {
    at: Stamp,
    /// With how far the clock of the transforms is behind, in nanoseconds.
    robots: Vec<(&'a RobotDescription, (Arc<TransformBuffer>, i64))>,
}

impl Buffers<'_> {
    /// About the bytes that [`edges`](Self::edges) take, with their text.
    pub fn bytes(&self) -> usize {
        let buffers = self.robots.iter().map(|(_, (buffer, _))| buffer);
        EDGE_BYTES * buffers.map(|buffer| buffer.stats().edges).sum::<usize>()
    }

    /// The edges of all robots at that time, in one tree.
    pub fn edges(&self) -> Vec<EdgeAt> {
        let mut all: Vec<EdgeAt> = Vec::new();
        let mut roots: HashMap<String, String> = HashMap::new();
        for (robot, (buffer, behind)) in &self.robots {
            let edges = edges_at(buffer, self.at.plus_nanos(-behind));
            if self.robots.len() > 1 {
                for root in roots_of(&edges) {
                    let own = robot.named(root);
                    match roots.get(root) {
                        Some(first) => all.push(same_place(first, &own)),
                        None => drop(roots.insert(root.to_owned(), own)),
                    }
                }
            }
            all.extend(edges.into_iter().map(|edge| EdgeAt {
                parent: robot.named(&edge.parent),
                child: robot.named(&edge.child),
                ..edge
            }));
        }
        all
    }
}

/// The edges of a buffer, as they were at `at`.
fn edges_at(buffer: &TransformBuffer, at: Stamp) -> Vec<EdgeAt> {
    let edges = buffer.edges().into_iter().map(|edge| {
        let (parent, child) = (edge.parent.as_str(), edge.child.as_str());
        let pose = buffer.lookup_with(parent, child, at, Extrapolation::Hold(u64::MAX));
        // Before its first sample, an edge was not known.
        let is_known = edge.is_static
            || edge
                .range
                .is_some_and(|range| range.start <= at.plus_nanos(BUFFER_AFTER_NANOS));
        EdgeAt {
            parent: parent.to_owned(),
            child: child.to_owned(),
            is_static: edge.is_static,
            pose: pose.ok().filter(|_| is_known).map(|pose| parts_of(&pose)),
            hz: if edge.is_static { 0.0 } else { edge.rate() },
        }
    });
    edges.collect()
}

/// The frames without a parent.
fn roots_of(edges: &[EdgeAt]) -> Vec<&str> {
    let children: HashSet<&str> = edges.iter().map(|edge| edge.child.as_str()).collect();
    let mut roots: Vec<&str> = edges.iter().map(|edge| edge.parent.as_str()).collect();
    roots.retain(|parent| !children.contains(parent));
    roots.sort_unstable();
    roots.dedup();
    roots
}

/// An identity edge between two frames.
fn same_place(parent: &str, child: &str) -> EdgeAt {
    EdgeAt {
        parent: parent.to_owned(),
        child: child.to_owned(),
        is_static: true,
        pose: Some([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]),
        hz: 0.0,
    }
}

impl RobotFrames {
    fn new(
        cache: &BlockCache,
        robot: RobotDescription,
        namespaces: Option<&Namespaces>,
        most: u64,
        memory: &Arc<Memory>,
    ) -> Self {
        let summary = cache.summary();
        let topics = robot.topics(&summary, namespaces);
        let of_frames = summary
            .channels
            .iter()
            .filter(|entry| topics.binary_search(&entry.channel.topic).is_ok());
        let messages: Option<u64> = of_frames.map(|entry| entry.messages).sum();
        let mut options = BufferOptions::default().bytes(most);
        if let Some(window) = summary.recent.as_ref().and_then(|recent| recent.age) {
            options = options.window(window);
        }
        let live = || Mutex::new(LiveFrames::new(options.conflicts(Conflicts::LastWins)));
        RobotFrames {
            robot,
            is_by_namespace: namespaces.is_some(),
            cache: cache.clone(),
            // Transforms are spread over a recording: reading all of them means reading all of it.
            is_small: messages.is_some_and(|messages| messages <= MAX_WHOLE_MESSAGES)
                && summary.size <= SMALL_BYTES,
            buffers: Mutex::default(),
            memory: Arc::clone(memory),
            topics: (!cache.growth().is_growing()).then_some(topics),
            live: cache.growth().is_growing().then(live),
        }
    }

    fn topics(&self) -> Vec<String> {
        if let Some(topics) = &self.topics {
            return topics.clone();
        }
        let summary = self.cache.summary();
        let namespaces = self.is_by_namespace.then(|| Namespaces::of(&summary));
        self.robot.topics(&summary, namespaces.as_ref())
    }

    fn restarts(&self) -> u64 {
        let live = self.live.as_ref().map(lock);
        live.map_or(0, |live| live.restarts)
    }

    fn catch_up(&self) {
        let Some(live) = &self.live else {
            return;
        };
        let mut live = lock(live);
        live.catch_up(&self.cache, self.topics());
        let bytes = bytes_of(live.loader.buffer());
        let before = std::mem::replace(&mut live.bytes, bytes);
        drop(live);
        if bytes != before {
            // The sum wraps around where there are fewer.
            let more = bytes.wrapping_sub(before);
            self.memory.held.fetch_add(more, Ordering::Relaxed);
            self.evict(0);
        }
    }

    fn at(&self, at: Stamp) -> Vec<EdgeAt> {
        let (buffer, behind) = self.buffer(at);
        edges_at(&buffer, at.plus_nanos(-behind))
    }

    /// Whether the answer for a time is in memory.
    fn holds(&self, at: Stamp) -> bool {
        if self.live.is_some() {
            return true;
        }
        let key = self.key(at);
        // A reader of a buffer holds the lock: the buffer is not there yet.
        let buffers = self.buffers.try_lock();
        buffers.is_ok_and(|buffers| buffers.iter().any(|held| held.key == key))
    }

    fn near(&self, at: Stamp) -> (Arc<TransformBuffer>, i64) {
        if self.holds(at) {
            return self.buffer(at);
        }
        let (fixed, moving) = self.fixed_and_moving();
        let summary = self.cache.summary();
        let is_few = |few: u64| few <= NEAR_STATIC_MESSAGES;
        let channels = summary.channels.iter();
        let repeated = channels.filter(|one| !one.messages.is_some_and(is_few));
        let repeated = Topics::named(repeated.map(|one| &one.channel.topic));
        let (many, few): (Vec<String>, Vec<String>) = fixed
            .into_iter()
            .partition(|topic| repeated.contains(topic));
        let mut loader = loader();
        self.absorb(&mut loader, few, TimeRange::ALL);
        // For topics that repeat, and for rare ones, the last message counts.
        let last = Topics::named(many.iter().chain(&moving));
        match self.cache.latest_at(&last, at) {
            Ok(batch) => drop(loader.absorb(&batch)),
            Err(error) => tracing::warn!("cannot look up transforms: {error}"),
        }
        let range = TimeRange::new(
            at.plus_nanos(-NEAR_BEFORE_NANOS),
            at.plus_nanos(NEAR_AFTER_NANOS),
        );
        self.absorb(&mut loader, moving, range);
        (Arc::new(loader.buffer().clone()), self.robot.behind)
    }

    fn in_root(&self, frame: &str, stamp: Stamp, logged: Stamp) -> Option<(String, Pose)> {
        let (buffer, behind) = self.buffer(logged);
        let logged = logged.plus_nanos(-behind);
        // A clock that is far off has no relation to the recording's time.
        let is_near = stamp.since(logged).unsigned_abs() < BUFFER_SPAN_NANOS as u64;
        let stamp = if is_near { stamp } else { logged };
        let mut root = frame.to_owned();
        for _ in 0..256 {
            match buffer.parent(root.as_str()) {
                Ok(Some(parent)) => parent.as_str().clone_into(&mut root),
                _ => break,
            }
        }
        if root == frame {
            return Some((root, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]));
        }
        let hold = Extrapolation::Hold(u64::MAX);
        let pose = buffer.lookup_with(root.as_str(), frame, stamp, hold).ok()?;
        Some((root, parts_of(&pose)))
    }

    /// The buffer for a time, and how far its clock is behind.
    fn buffer(&self, at: Stamp) -> (Arc<TransformBuffer>, i64) {
        if let Some(live) = &self.live {
            let mut live = lock(live);
            live.catch_up(&self.cache, self.topics());
            return (Arc::new(live.loader.buffer().clone()), live.behind);
        }
        (self.buffer_of(at), self.robot.behind)
    }

    /// The key of the buffer for a time.
    fn key(&self, at: Stamp) -> i64 {
        if self.is_small {
            0
        } else {
            at.nanos().div_euclid(BUFFER_SPAN_NANOS)
        }
    }

    fn buffer_of(&self, at: Stamp) -> Arc<TransformBuffer> {
        let key = self.key(at);
        // One at a time: the second caller finds what the first has read.
        let mut buffers = lock(&self.buffers);
        if let Some(found) = buffers.iter().position(|held| held.key == key) {
            let held = buffers.remove(found);
            let buffer = Arc::clone(&held.buffer);
            buffers.push(held);
            return buffer;
        }
        let range = if self.is_small {
            TimeRange::ALL
        } else {
            let start = Stamp::from_nanos(key.saturating_mul(BUFFER_SPAN_NANOS));
            TimeRange::new(
                start.plus_nanos(-BUFFER_BEFORE_NANOS),
                start.plus_nanos(BUFFER_SPAN_NANOS + BUFFER_AFTER_NANOS),
            )
        };
        let buffer = Arc::new(self.read(range));
        let bytes = bytes_of(&buffer);
        self.memory.held.fetch_add(bytes, Ordering::Relaxed);
        let held = Arc::clone(&buffer);
        buffers.push(IntervalBuffer {
            key,
            buffer: held,
            bytes,
        });
        drop(buffers);
        // The one that was asked for stays.
        self.evict(1);
        buffer
    }

    /// Drops the least recently used buffers, except for the last `spared`, as far as the memory of the recording demands. The
    /// blocks have what is left.
    fn evict(&self, spared: usize) {
        let Memory {
            most,
            held,
            evicted,
        } = &*self.memory;
        let most = most.load(Ordering::Relaxed);
        let mut buffers = lock(&self.buffers);
        while buffers.len() > spared
            && (buffers.len() > MOST_BUFFERS || held.load(Ordering::Relaxed) > most / 2)
        {
            let dropped = buffers.remove(0);
            held.fetch_sub(dropped.bytes, Ordering::Relaxed);
            evicted.fetch_add(1, Ordering::Relaxed);
        }
        drop(buffers);
        let left = most.saturating_sub(held.load(Ordering::Relaxed));
        self.cache.set_budget(left.max(most / 4));
    }

    fn read(&self, range: TimeRange) -> TransformBuffer {
        let mut loader = loader();
        let (fixed, moving) = self.fixed_and_moving();
        self.absorb(&mut loader, fixed, TimeRange::ALL);
        self.absorb(&mut loader, moving, range);
        loader.buffer().clone()
    }

    /// The topics of static transforms, and those of moving ones. The description comes first, since joints move what
    /// it describes.
    fn fixed_and_moving(&self) -> (Vec<String>, Vec<String>) {
        let is_fixed = |topic: &String| {
            matches!(
                topic.rsplit('/').next(),
                Some("tf_static" | "robot_description")
            )
        };
        self.topics().into_iter().partition(is_fixed)
    }

    fn absorb(&self, loader: &mut TransformLoader, topics: Vec<String>, range: TimeRange) {
        if topics.is_empty() {
            return;
        }
        let query = Query::topics(topics).between(range);
        for batch in self.cache.read_as(&query, HeadClass::Scrub) {
            match batch {
                // Invalid transforms are skipped here; `asof tf` reports them.
                Ok(batch) => drop(loader.absorb(&batch)),
                Err(error) => return tracing::warn!("cannot read further transforms: {error}"),
            }
        }
    }
}

fn loader() -> TransformLoader {
    let options = BufferOptions::unbounded().conflicts(Conflicts::LastWins);
    TransformLoader::new(TransformBuffer::with_options(options))
}

impl LiveFrames {
    fn new(options: BufferOptions) -> Self {
        LiveFrames {
            loader: live_loader(options),
            options,
            bytes: 0,
            topics: Vec::new(),
            follow: None,
            behind: 0,
            restarts: 0,
        }
    }

    fn catch_up(&mut self, cache: &BlockCache, topics: Vec<String>) {
        if topics != self.topics || self.follow.is_none() {
            // Everything that is held of them, once more: what the buffer already has changes nothing.
            let query = Query::topics(topics.clone());
            match cache.follow(&query) {
                Ok(follow) => (self.topics, self.follow) = (topics, Some(follow)),
                Err(error) => return tracing::warn!("cannot follow transforms: {error}"),
            }
        }
        let Some(follow) = &mut self.follow else {
            return;
        };
        loop {
            match follow.next(Instant::now()) {
                Ok(Followed::Batch(batch)) => {
                    let absorbed = self.loader.absorb(&batch);
                    for problem in absorbed.problems {
                        tracing::debug!("a transform was skipped: {}", problem.message);
                    }
                    if let Some(jump) = absorbed.jump {
                        tracing::warn!("{jump}");
                        self.restarts += 1;
                    }
                    self.behind = clocks_differ(self.loader.buffer(), batch.range().end);
                }
                Ok(Followed::Restarted) => {
                    tracing::warn!("the clock was set back; the frames start over");
                    self.loader = live_loader(self.options);
                    self.behind = 0;
                    self.restarts += 1;
                }
                Ok(Followed::CaughtUp | Followed::End(_)) => return,
                Err(error) => {
                    tracing::warn!("cannot follow transforms: {error}");
                    return;
                }
            }
        }
    }
}

/// Loads the transforms of a growing source. When their clock jumps back, as in a simulation that restarts, it starts
/// over.
fn live_loader(options: BufferOptions) -> TransformLoader {
    let loading = LoaderOptions {
        jump_back: Some(JUMP_BACK),
        forget_after: Some(FORGET_AFTER),
        ..LoaderOptions::default()
    };
    TransformLoader::with_options(TransformBuffer::with_options(options), loading)
}

/// How far the transforms' clock is behind the log's, where the newest message came at `logged`.
fn clocks_differ(buffer: &TransformBuffer, logged: Stamp) -> i64 {
    let edges = buffer.edges();
    let moving = edges.iter().filter(|edge| !edge.is_static);
    let newest = moving.filter_map(|edge| edge.range.map(|range| range.end));
    let behind = newest.max().map_or(0, |newest| logged.since(newest));
    // Some transforms are published ahead of their time, some late.
    if behind.unsigned_abs() < MAX_CLOCK_DIFFERENCE_NANOS {
        0
    } else {
        behind
    }
}

/// About the bytes of a buffer.
fn bytes_of(buffer: &TransformBuffer) -> u64 {
    let stats = buffer.stats();
    stats.bytes + stats.frames as u64 * FRAME_BYTES
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parts_of(pose: &Isometry3<f64>) -> Pose {
    let (place, turn) = (&pose.translation, &pose.rotation);
    [place.x, place.y, place.z, turn.i, turn.j, turn.k, turn.w]
}

#[cfg(test)]
mod tests {
    use asof_core::{Channel, Message, Schema};
    use asof_formats::{McapFile, McapWriter, McapWriterOptions};

    use super::*;

    /// The robots of a recording with transforms in so many namespaces.
    fn robots_of(namespaces: usize) -> usize {
        let schema = Arc::new(Schema {
            name: "tf2_msgs/msg/TFMessage".to_owned(),
            encoding: "ros2msg".to_owned(),
            data: "geometry_msgs/TransformStamped[] transforms".into(),
        });
        let out = std::io::Cursor::new(Vec::new());
        let mut writer = McapWriter::new(out, McapWriterOptions::default()).expect("a writer");
        for number in 0..namespaces {
            let channel = Channel {
                topic: format!("/r{number}/tf"),
                message_encoding: "cdr".to_owned(),
                schema: Some(Arc::clone(&schema)),
                ..Channel::default()
            };
            let message = Message {
                channel: Arc::new(channel),
                log_time: Stamp::EPOCH,
                publish_time: Stamp::EPOCH,
                sequence: 0,
                payload: vec![0, 1, 0, 0, 0, 0, 0, 0].into(),
            };
            writer.write(&message).expect("written");
        }
        let bytes = writer.finish().expect("finished").into_inner();
        let file = McapFile::from_bytes("test", bytes).expect("it opens");
        let cache = BlockCache::over(Arc::new(file), asof_blocks::CacheOptions::default());
        Frames::new(&cache, &[], 1 << 20).robots.len()
    }

    #[test]
    fn more_namespaces_than_are_told_apart_are_one_robot() {
        assert_eq!(robots_of(1), 1);
        assert_eq!(robots_of(MOST_ROBOTS), MOST_ROBOTS);
        assert_eq!(robots_of(MOST_ROBOTS + 1), 1);
    }
}
