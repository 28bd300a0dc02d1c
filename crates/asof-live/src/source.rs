//! A running robot as a source, like a recording.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use asof_core::{
    AttachmentEntry, Batch, Batches, Channel, FileParts, Follow, FollowEnd, Followed, Growth,
    HiddenRecords, MetadataEntry, Problem, ProblemKind, Progress, Query, Source, SourceError,
    Stamp, StampHealth, Summary, Topics,
};
use asof_window::{Bounds, Recent, RecentStats};
use bytes::Bytes;
use parking_lot::Mutex;

use crate::describe::Described;
use crate::{LiveError, Publisher, Robot, RobotInfo, Sample, Subscription};

/// Which topics of a robot are kept, and how much of them; see [`Robot::recent`].
///
/// ```
/// use std::time::Duration;
/// use asof_live::RecentOptions;
/// use asof_window::Bounds;
///
/// let options = RecentOptions::default()
///     .with_bounds(Bounds::age(Duration::from_secs(30)).and_bytes(64 << 20))
///     .with_topics(|publisher| publisher.channel.topic.starts_with("/camera"))
///     .with_key("weather/**");
/// ```
#[derive(Clone)]
pub struct RecentOptions {
    bounds: Bounds,
    wants: Arc<Wants>,
    keys: Vec<String>,
}

type Wants = dyn Fn(&Publisher) -> bool + Send + Sync;

impl RecentOptions {
    /// Sets the bounds.
    #[must_use]
    pub fn with_bounds(self, bounds: Bounds) -> Self {
        RecentOptions { bounds, ..self }
    }

    /// Keeps only the topics that `wants` accepts. Other topics are not subscribed.
    #[must_use]
    pub fn with_topics(self, wants: impl Fn(&Publisher) -> bool + Send + Sync + 'static) -> Self {
        RecentOptions {
            wants: Arc::new(wants),
            ..self
        }
    }

    /// Keeps the messages on a raw key expression too.
    #[must_use]
    pub fn with_key(mut self, key_expression: impl Into<String>) -> Self {
        self.keys.push(key_expression.into());
        self
    }
}

impl Default for RecentOptions {
    /// All topics, for five minutes and within 600 MB.
    fn default() -> Self {
        RecentOptions {
            bounds: Recent::default().bounds(),
            wants: Arc::new(|_| true),
            keys: Vec::new(),
        }
    }
}

impl fmt::Debug for RecentOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecentOptions")
            .field("bounds", &self.bounds)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

impl Robot {
    /// Keeps the newest messages of the robot's topics as a source that grows: read it, query it and follow it like a
    /// recording. Topics are subscribed as they appear.
    ///
    /// A message's log time is its receipt time; its publish time is its publisher's.
    ///
    /// # Errors
    /// When a raw key expression is invalid.
    pub fn recent(&self, options: &RecentOptions) -> Result<LiveSource, LiveError> {
        let inner = Arc::new(Inner {
            recent: Recent::new(options.bounds),
            undescribed: Mutex::default(),
            has_undescribed: AtomicBool::new(false),
            stamps: Mutex::default(),
            clock: Mutex::default(),
        });
        let (listed, filled, wants) = (
            Arc::clone(&inner),
            Arc::clone(&inner),
            Arc::clone(&options.wants),
        );
        let wants = move |publisher: &Publisher| {
            let is_wanted = wants(publisher);
            if is_wanted {
                listed.list(publisher);
            }
            is_wanted
        };
        let mut subscriptions = vec![self.subscribe(wants, move |sample| filled.fill(&sample))];
        for key in &options.keys {
            let filled = Arc::clone(&inner);
            subscriptions.push(self.subscribe_key(key, move |sample| filled.fill(&sample))?);
        }
        Ok(LiveSource {
            inner,
            robot: self.clone(),
            subscriptions,
            looked: Mutex::new(None),
            summary: Mutex::new(None),
        })
    }
}

/// The newest messages of a running robot, as a [`Source`] that grows; made by [`Robot::recent`].
///
/// Dropping it ends its subscriptions; its followers end as closed.
pub struct LiveSource {
    inner: Arc<Inner>,
    robot: Robot,
    subscriptions: Vec<Subscription>,
    /// When the connection was last checked.
    looked: Mutex<Option<Instant>>,
    summary: Mutex<Option<CachedSummary>>,
}

/// A cached summary, and what it was made from: the store's summary, the count of refused messages, and the robot's
/// info.
struct CachedSummary {
    of: Arc<Summary>,
    refused: u64,
    problems: Vec<Problem>,
    info: RobotInfo,
    summary: Arc<Summary>,
}

struct Inner {
    recent: Recent,
    /// Channels that were seen before the definitions of their types arrived.
    undescribed: Mutex<Vec<Arc<Described>>>,
    has_undescribed: AtomicBool,
    /// How the stamps of each topic stand to the arrival of its messages.
    stamps: Mutex<BTreeMap<String, StampHealth>>,
    /// The robot's own clock, where it was heard.
    clock: Mutex<Option<Stamp>>,
}

/// The most topics whose stamps are looked at.
const MOST_TOPICS: usize = 20_000;
/// The metadata of the topics whose stamps are wrong.
const STAMPS: &str = "stamps";

/// How often the connection is checked, while the source is in use.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How often a pending type is checked for.
const TYPE_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Discovery counts as complete when no topic has appeared for this long.
const DISCOVERY_QUIET_TIME: Duration = Duration::from_millis(250);

impl LiveSource {
    /// The robot.
    pub fn robot(&self) -> &Robot {
        &self.robot
    }

    /// Stops listening: from here on it is a finished recording of what it holds.
    pub fn close(&self) {
        self.inner.recent.close(FollowEnd::Complete);
    }

    /// What is held, and what was evicted.
    pub fn stats(&self) -> RecentStats {
        self.inner.recent.stats()
    }

    /// Messages that were dropped because they came on more raw keys than are followed.
    pub fn refused(&self) -> u64 {
        self.subscriptions.iter().map(Subscription::refused).sum()
    }

    /// The exact keys that are subscribed now.
    pub fn keys(&self) -> Vec<String> {
        self.subscriptions
            .iter()
            .flat_map(Subscription::keys)
            .collect()
    }

    /// Waits until the topics have been discovered and the definitions of their types have arrived, until `deadline`
    /// at the latest. Returns whether there are any topics.
    pub fn wait_for_topics(&self, deadline: Instant) -> bool {
        let mut known = (0, Instant::now());
        loop {
            self.refresh();
            let count = self.inner.recent.summary().channels.len();
            if count != known.0 {
                known = (count, Instant::now());
            }
            let is_settled = count > 0 && !self.inner.has_undescribed.load(Ordering::Acquire);
            let is_quiet = known.1.elapsed() >= DISCOVERY_QUIET_TIME;
            if is_settled && is_quiet || Instant::now() >= deadline {
                return count > 0;
            }
            thread::sleep(TYPE_POLL_INTERVAL);
        }
    }

    /// Whether topics still appear, or wait for the definitions of their types.
    pub fn is_discovering(&self) -> bool {
        let is_quiet = |since: Instant| since.elapsed() >= DISCOVERY_QUIET_TIME;
        let is_settled = !self.inner.has_undescribed.load(Ordering::Acquire);
        !(is_settled && self.robot.inner.graph.changed().is_none_or(is_quiet))
    }

    /// Waits until each known topic has had a message, until `deadline` at the latest. Returns whether each has.
    pub fn wait_for_messages(&self, deadline: Instant) -> bool {
        loop {
            let known = self.inner.recent.latest_at(&Topics::All, Stamp::MAX);
            let heard = known.map_or(0, |batch| batch.len());
            let topics = self.inner.recent.summary().topics().len();
            if heard >= topics && topics > 0 {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(TYPE_POLL_INTERVAL);
        }
    }

    /// Updates the definitions of types and the state of the connection.
    fn refresh(&self) {
        self.inner.describe();
        let Some(mut looked) = self.looked.try_lock() else {
            return;
        };
        if looked.is_none_or(|last| last.elapsed() >= POLL_INTERVAL) {
            self.inner.recent.set_connected(self.robot.is_connected());
            *looked = Some(Instant::now());
        }
    }
}

impl Inner {
    /// Lists a topic before its first message.
    fn list(&self, publisher: &Publisher) {
        self.recent.add_channel(&publisher.channel);
        if publisher.described.is_pending() {
            self.note(&publisher.described);
        }
    }

    fn fill(&self, sample: &Sample) {
        if let Some(described) = &sample.described {
            self.note(described);
        }
        self.note_stamps(sample);
        // This is the thread that receives: a large message, which perhaps nobody reads, is not copied here.
        match sample.to_message_in_pieces() {
            Some((message, payload)) => {
                let (len, bytes) = (payload.len() as u64, payload.weight());
                let join = move || payload.bytes();
                self.recent.push_later(message, len, bytes, join);
            }
            None => self.recent.push(sample.to_message()),
        }
    }

    fn note_stamps(&self, sample: &Sample) {
        let clock = {
            let mut clock = self.clock.lock();
            *clock = sample.clock_time().or(*clock);
            *clock
        };
        let mut stamps = self.stamps.lock();
        let topic = &sample.channel.topic;
        if !stamps.contains_key(topic) {
            if stamps.len() >= MOST_TOPICS {
                return;
            }
            stamps.insert(topic.clone(), StampHealth::default());
        }
        if let Some(health) = stamps.get_mut(topic) {
            health.note(sample.stamps_beside(clock), sample.received);
        }
    }

    /// The topics whose stamps are wrong, and how.
    fn wrong_stamps(&self) -> BTreeMap<String, String> {
        let stamps = self.stamps.lock();
        let wrong = stamps.iter().filter(|(_, health)| !health.is_good());
        wrong
            .map(|(topic, health)| (topic.clone(), health.to_string()))
            .collect()
    }

    /// Remembers that the definition of a type is pending.
    fn note(&self, described: &Arc<Described>) {
        let mut undescribed = self.undescribed.lock();
        if !undescribed.iter().any(|one| Arc::ptr_eq(one, described)) {
            undescribed.push(Arc::clone(described));
            self.has_undescribed.store(true, Ordering::Release);
        }
    }

    /// Adds the definitions that have arrived to the messages that are held.
    fn describe(&self) {
        if !self.has_undescribed.load(Ordering::Acquire) {
            return;
        }
        let mut undescribed = self.undescribed.lock();
        undescribed.retain(|described| {
            if let Some(channel) = described.settled() {
                self.recent.add_channel(&channel);
                return false;
            }
            true
        });
        if undescribed.is_empty() {
            self.has_undescribed.store(false, Ordering::Release);
        }
    }

    /// The batch with the definitions that have arrived since; the unchanged batch as the error where one is still
    /// worth waiting for.
    fn described(&self, batch: Batch) -> Result<Batch, Batch> {
        if !batch.channels().iter().any(is_bare) {
            return Ok(batch);
        }
        self.describe();
        if batch
            .channels()
            .iter()
            .any(|channel| self.is_pending(channel))
        {
            return Err(batch);
        }
        let summary = self.recent.summary();
        let described = |channel: &Arc<Channel>| {
            let mut known = summary.channels.iter().map(|entry| &entry.channel);
            let same = known.find(|known| is_same_type(known, channel) && !is_bare(known));
            Arc::clone(same.filter(|_| is_bare(channel)).unwrap_or(channel))
        };
        let channels: Vec<Arc<Channel>> = batch.channels().iter().map(described).collect();
        Ok(Batch::new(
            channels.into(),
            batch.buffers().to_vec(),
            batch.rows().to_vec(),
        ))
    }

    fn is_pending(&self, channel: &Arc<Channel>) -> bool {
        let is_it = |described: &Arc<Described>| is_same_type(&described.known().channel, channel);
        is_bare(channel) && self.undescribed.lock().iter().any(is_it)
    }
}

/// Whether the channel's type has a name but no definition.
fn is_bare(channel: &Arc<Channel>) -> bool {
    let schema = channel.schema.as_ref();
    schema.is_some_and(|schema| schema.data.is_empty())
}

fn is_same_type(one: &Channel, other: &Channel) -> bool {
    one.topic == other.topic && one.type_name() == other.type_name()
}

impl Source for LiveSource {
    fn summary(&self) -> Arc<Summary> {
        self.refresh();
        let (kept, refused) = (self.inner.recent.summary(), self.refused());
        // The robot's clock changes all the time, and is not part of a summary.
        let info = RobotInfo {
            time: None,
            ..self.robot.info()
        };
        let problems = self.robot.losses();
        let mut made = self.summary.lock();
        if let Some(told) = &*made
            && Arc::ptr_eq(&told.of, &kept)
            && told.refused == refused
            && told.problems == problems
            && told.info == info
        {
            return Arc::clone(&told.summary);
        }
        let mut summary = Summary {
            profile: profile_of(&kept).to_owned(),
            library: info.name.clone(),
            ..Summary::clone(&kept)
        };
        let sets = info.clone().into_metadata().into_iter();
        summary.metadata = sets
            .map(|(name, _)| MetadataEntry {
                name: name.to_owned(),
                offset: 0,
            })
            .collect();
        if !self.inner.wrong_stamps().is_empty() {
            summary.metadata.push(MetadataEntry {
                name: STAMPS.to_owned(),
                offset: 0,
            });
        }
        // A problem of a topic that was not asked for is none of this source.
        let topics = kept.topics();
        let is_ours = |problem: &&Problem| {
            let topic = problem.topic.as_deref();
            topic.is_none_or(|topic| topics.contains(&topic))
        };
        let problems_here = problems.iter().filter(is_ours);
        summary.problems.extend(problems_here.cloned());
        summary.problems.extend(several_types(&kept));
        if refused > 0 {
            let text = format!(
                "{refused} messages were dropped: they came on more raw keys than are followed; \
                 name fewer with a narrower key expression"
            );
            summary
                .problems
                .push(Problem::whole(ProblemKind::Incomplete, text));
            if let Some(recent) = &mut summary.recent {
                recent.refused += refused;
            }
        }
        let summary = Arc::new(summary);
        *made = Some(CachedSummary {
            of: kept,
            refused,
            problems,
            info,
            summary: Arc::clone(&summary),
        });
        summary
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        self.inner.describe();
        self.inner.recent.read(query)
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        self.inner.describe();
        self.inner.recent.latest_at(topics, at)
    }

    fn growth(&self) -> Growth {
        self.inner.recent.growth()
    }

    /// A message whose type is still being described is held back until the description arrives, or is known not to
    /// come.
    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        Ok(Box::new(LiveFollow {
            inner: Arc::clone(&self.inner),
            follow: self.inner.recent.follow(query)?,
            waiting: None,
        }))
    }

    fn parts(&self) -> Option<&dyn FileParts> {
        Some(self)
    }

    /// The problems so far.
    fn check(&self, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        let summary = self.summary();
        progress(summary.size, summary.size)?;
        let mut problems = summary.problems.clone();
        let lost = self.robot.losses();
        let more = self.robot.problems().into_iter();
        let more: Vec<Problem> = more
            .filter(|problem| !lost.contains(problem) && !problems.contains(problem))
            .collect();
        problems.extend(more);
        Ok(problems)
    }
}

/// The robot's info is its metadata.
impl FileParts for LiveSource {
    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        Err(SourceError::without("a robot", "attachment", &entry.name))
    }

    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        if entry.name == STAMPS {
            return Ok(self.inner.wrong_stamps());
        }
        let mut sets = self.robot.info().into_metadata().into_iter();
        let found = sets.find(|(name, _)| *name == entry.name);
        found
            .map(|(_, values)| values)
            .ok_or_else(|| SourceError::Unreadable {
                place: entry.name.clone(),
                reason: "the robot no longer has this metadata".to_owned(),
            })
    }

    fn hidden(&self, _topics: &Topics) -> Result<HiddenRecords, SourceError> {
        Ok(Box::new(std::iter::empty()))
    }
}

impl Drop for LiveSource {
    fn drop(&mut self) {
        self.subscriptions.clear();
        self.inner.recent.close(FollowEnd::Closed);
    }
}

struct LiveFollow {
    inner: Arc<Inner>,
    follow: Box<dyn Follow>,
    /// A batch that waits for the definition of a type.
    waiting: Option<Batch>,
}

impl Follow for LiveFollow {
    fn next(&mut self, deadline: Instant) -> Result<Followed, SourceError> {
        let mut batch = match self.waiting.take() {
            Some(batch) => batch,
            None => match self.follow.next(deadline)? {
                Followed::Batch(batch) => batch,
                other => return Ok(other),
            },
        };
        loop {
            batch = match self.inner.described(batch) {
                Ok(batch) => return Ok(Followed::Batch(batch)),
                Err(batch) if Instant::now() >= deadline => {
                    self.waiting = Some(batch);
                    return Ok(Followed::CaughtUp);
                }
                Err(batch) => batch,
            };
            thread::sleep(TYPE_POLL_INTERVAL);
        }
    }

    fn missed(&mut self) -> BTreeMap<String, u64> {
        self.follow.missed()
    }
}

/// A problem for each topic that was heard with several types.
fn several_types(summary: &Summary) -> Vec<Problem> {
    let mut types: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for entry in &summary.channels {
        let (topic, kind) = (&entry.channel.topic, entry.channel.type_name());
        types.entry(topic).or_default().insert(kind);
    }
    let several = types.into_iter().filter(|(_, types)| types.len() > 1);
    several
        .map(|(topic, types)| {
            let types: Vec<&str> = types.into_iter().collect();
            crate::robot::several_types(topic, &types.join(", "))
        })
        .collect()
}

/// The MCAP profile for the channels: set if all ROS channels are of one ROS version.
fn profile_of(summary: &Summary) -> &'static str {
    profile(summary.channels.iter().map(|entry| &*entry.channel))
}

/// The MCAP profile for the channels: set if all ROS channels are of one ROS version.
pub(crate) fn profile<'a>(channels: impl Iterator<Item = &'a Channel>) -> &'static str {
    let (mut has_one, mut has_two) = (false, false);
    for channel in channels {
        let language = channel.schema.as_ref().map(|schema| &*schema.encoding);
        let is_announced = channel.metadata.contains_key(crate::describe::TYPE_HASH);
        has_two |= is_announced || channel.message_encoding == "cdr" && language != Some("omgidl");
        has_one |= channel.message_encoding == "ros1";
    }
    match (has_one, has_two) {
        (true, false) => "ros1",
        (false, true) => "ros2",
        _ => "",
    }
}
