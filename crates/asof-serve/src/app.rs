//! The state that all clients share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use asof_blocks::{BlockCache, CacheOptions};
use asof_core::{Channel, Source, Stamp, Summary, TimeRange, Topics};
use asof_decode::{Archetype, Decoders};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use crate::changes::Changes;
use crate::frames::Frames;
use crate::guard::{Guard, Refusals};
use crate::opened::{OpenRecordings, Usage};
use crate::options::{ServeLimits, ServeOptions};
use crate::policy::PageOptions;
use crate::queries::{self, QueryEngine};
use crate::record::plot_of;
use crate::recordings::RecordingList;
use crate::series::Looks;
use crate::show::{Show, ShowOptions};
use crate::snapshots::SnapshotTaker;
use crate::tracks::Tracks;
use crate::waiting::Waiting;

/// One source, one cache, and everything that is computed from it.
pub(crate) struct App {
    pub name: String,
    pub cache: BlockCache,
    /// Whether it grew when the server was started: a running robot, or a file that is being written.
    pub is_live: bool,
    /// Times are relative to this one.
    pub start: Stamp,
    /// Ranges that are far apart, such as recordings of different years; usually just one.
    stretches: Vec<TimeRange>,
    pub frames: Frames,
    pub looks: Looks,
    pub tracks: Tracks,
    pub limits: ServeLimits,
    /// The topic prefixes of several robots.
    prefixes: Vec<String>,
    /// Folders whose files viewers may fetch.
    pub assets: Vec<PathBuf>,
    pub changes: Changes,
    /// The page's first layout, and the address of its map tiles.
    pub page: PageOptions,
    pub guard: Arc<Guard>,
    pub refusals: Arc<Refusals>,
    /// Data that waits to be sent.
    pub waiting: Arc<Waiting>,
    /// The free places for WebSockets.
    pub clients: Arc<Semaphore>,
    /// The free places for requests that read.
    pub readers: Arc<Semaphore>,
    /// The query engine, and the free places for queries.
    pub queries: Option<(Arc<dyn QueryEngine>, Arc<Semaphore>)>,
    /// Writes snapshots of a robot.
    pub snapshots: Option<Arc<dyn SnapshotTaker>>,
    /// The recordings that the page can choose from.
    pub recordings: Option<Arc<dyn RecordingList>>,
    /// The recordings that are open beside this one; `None` for one of those.
    pub opened: Option<OpenRecordings>,
    /// The title of what it was opened from.
    home: Option<String>,
    /// The folder of the layouts that are kept on the server.
    pub layouts: Option<PathBuf>,
    /// When it was last used.
    pub usage: Usage,
    /// The shared play head.
    pub together: watch::Sender<Together>,
    /// Becomes true when the server ends.
    pub over: watch::Sender<bool>,
    sessions: AtomicU64,
    /// Dropped messages of clients that have disconnected.
    pub dropped: AtomicU64,
}

/// The shared play head: the last action of the clients that play together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Together {
    /// The session that did it.
    pub by: u64,
    pub is_playing: bool,
    /// `None`: as fast as possible.
    pub speed: Option<f64>,
    pub position: Stamp,
    pub since: Instant,
}

/// About the bytes of a topic in the summary: as a value, and as text.
const TOPIC_BYTES: usize = 2048;

/// The least memory for players and queues: what one client's player and its images take.
const MIN_QUEUE_BYTES: u64 = 64 << 20;

/// The part of the memory for what was read that is for blocks. The rest is for read-ahead of players and for queued
/// data: it is memory as well.
pub(crate) fn block_bytes(cache_bytes: u64) -> u64 {
    let others = (cache_bytes / 4).max(MIN_QUEUE_BYTES);
    let blocks = cache_bytes.saturating_sub(others);
    blocks.max(cache_bytes / 4)
}

impl App {
    pub fn new(
        source: Arc<dyn Source>,
        name: &str,
        guard: Arc<Guard>,
        changes: Changes,
        options: &ServeOptions,
    ) -> Self {
        let limits = &options.limits;
        let waiting = Waiting::new(limits.waiting_bytes, limits.stalled_after);
        App::within(waiting, source, name, guard, changes, options)
    }

    fn within(
        waiting: Arc<Waiting>,
        source: Arc<dyn Source>,
        name: &str,
        guard: Arc<Guard>,
        changes: Changes,
        options: &ServeOptions,
    ) -> Self {
        let limits = options.limits.clone();
        let kept = CacheOptions {
            disk: options.disk.clone(),
            ..CacheOptions::with_budget(block_bytes(options.cache_bytes))
        };
        let cache = BlockCache::over(source, kept);
        let is_live = cache.growth().is_growing();
        let range = cache.summary().range;
        let first = (!range.is_empty()).then_some(range.start);
        let start = match options.start.or(first) {
            Some(start) => start,
            None if is_live => Stamp::now(),
            None => Stamp::EPOCH,
        };
        App {
            name: name.to_owned(),
            start,
            stretches: if is_live {
                Vec::new()
            } else {
                stretches(&cache)
            },
            frames: Frames::new(&cache, &options.robots, block_bytes(options.cache_bytes)),
            looks: Looks::new(&cache, limits.series_bytes / 2, is_live),
            tracks: Tracks::new(&cache, start, &limits, &waiting, is_live),
            is_live,
            prefixes: options
                .robots
                .iter()
                .map(|robot| robot.prefix.clone())
                .collect(),
            assets: options.assets.clone(),
            changes,
            page: PageOptions::of(options),
            guard,
            refusals: Arc::default(),
            waiting,
            clients: Arc::new(Semaphore::new(limits.clients)),
            readers: Arc::new(Semaphore::new(8)),
            snapshots: options.snapshots.clone(),
            queries: options
                .queries
                .clone()
                .map(|engine| (engine, Arc::new(Semaphore::new(queries::MOST_QUERIES)))),
            recordings: options.recordings.clone(),
            opened: Some(OpenRecordings::new(options)),
            home: None,
            layouts: options.layouts.clone(),
            usage: Usage::default(),
            together: watch::Sender::new(Together {
                by: 0,
                is_playing: false,
                speed: Some(1.0),
                position: start,
                since: Instant::now(),
            }),
            over: watch::Sender::new(false),
            sessions: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            limits,
            cache,
        }
    }

    /// Another recording on the same server, with the same limits on clients.
    pub fn beside(
        &self,
        source: Arc<dyn Source>,
        name: &str,
        changes: Changes,
        options: &ServeOptions,
    ) -> Self {
        let (waiting, guard) = (Arc::clone(&self.waiting), Arc::clone(&self.guard));
        App {
            refusals: Arc::clone(&self.refusals),
            clients: Arc::clone(&self.clients),
            readers: Arc::clone(&self.readers),
            opened: None,
            home: Some(match &self.recordings {
                Some(recordings) => recordings.name(),
                None if self.name.is_empty() => "asof".to_owned(),
                None => self.name.clone(),
            }),
            ..App::within(waiting, source, name, guard, changes, options)
        }
    }

    /// What shows messages in the forms of the page.
    pub fn show<'a>(&'a self, decoders: &'a mut Decoders) -> Show<'a> {
        Show {
            decoders,
            cache: &self.cache,
            frames: &self.frames,
            start: self.start,
            wish: ShowOptions::default(),
        }
    }

    /// The number of a new session, never zero.
    pub fn next_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Nanoseconds since the start of the recording, the time of the API.
    pub fn relative(&self, stamp: Stamp) -> i64 {
        stamp.since(self.start)
    }

    pub fn absolute(&self, t: i64) -> Stamp {
        self.start.plus_nanos(t)
    }

    /// About the bytes of the summary while it is made.
    pub fn summary_bytes(&self) -> usize {
        TOPIC_BYTES * (1 + self.cache.summary().channels.len())
    }

    /// The summary of the recording.
    pub fn summary(&self) -> Value {
        let summary = self.cache.summary();
        let attachment = |entry: &asof_core::AttachmentEntry| json!({ "name": entry.name, "media_type": entry.media_type, "size": entry.size });
        json!({
            "name": self.name,
            "format": summary.format,
            "library": summary.library,
            "profile": summary.profile,
            "size": summary.size,
            "start": self.start.nanos().to_string(),
            "start_text": self.start.to_string(),
            "duration": if self.is_live { self.relative(summary.range.end).max(0) } else { summary.range.duration_nanos() },
            "is_empty": summary.range.is_empty(),
            "stretches": self.stretches.iter().map(|range| [self.relative(range.start), self.relative(range.end)]).collect::<Vec<_>>(),
            "messages": summary.messages,
            "chunks": summary.chunks,
            "compression": summary.compression,
            "topics": topics(&summary),
            "frame_topics": self.frames.topics(),
            "prefixes": self.prefixes,
            "attachments": summary.attachments.iter().map(attachment).collect::<Vec<_>>(),
            "metadata": summary.metadata.iter().map(|entry| &entry.name).collect::<Vec<_>>(),
            "problems": problems(&summary),
            "changes": self.changes.summary(),
            "layout": self.page.layout,
            "tiles": self.page.tiles,
            "live": self.is_live,
            "window": self.window(&summary),
            "sql": self.queries.is_some(),
            "snapshots": self.snapshots.is_some(),
            "fleet": self.recordings.as_ref().map(|recordings| recordings.name()),
            "home": self.home,
            "layouts": self.layouts.is_some(),
            "version": env!("CARGO_PKG_VERSION"),
        })
    }

    /// What a growing source holds; null for a complete recording.
    pub fn window(&self, summary: &Summary) -> Value {
        if !self.is_live {
            return Value::Null;
        }
        let ends = (!summary.range.is_empty()).then_some(summary.range);
        let mut window = json!({
            "from": ends.map_or(0, |range| self.relative(range.start)),
            "to": ends.map_or(0, |range| self.relative(range.end)),
            "messages": summary.messages,
            "bytes": summary.size,
            // A file that is being written keeps everything.
            "age": null, "budget": null, "left": 0, "crowded_out": 0, "refused": 0,
            "connected": self.cache.growth().is_growing(),
        });
        if let Some(recent) = &summary.recent {
            let nanos = |age: Duration| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
            window["age"] = recent.age.map(nanos).into();
            window["budget"] = recent.budget.into();
            window["bytes"] = recent.bytes.into();
            window["left"] = recent.evicted.into();
            window["crowded_out"] = recent.crowded_out.into();
            window["refused"] = recent.refused.into();
            window["connected"] = recent.is_connected.into();
        }
        window
    }

    /// The state of the server.
    pub fn status(&self) -> Value {
        let cache = self.cache.stats();
        let together = self.together.borrow();
        json!({
            "clients": self.limits.clients - self.clients.available_permits(),
            "sessions": self.sessions.load(Ordering::Relaxed),
            "dropped": self.dropped.load(Ordering::Relaxed),
            "refused": self.refusals.counts(),
            "waiting": self.waiting.status(),
            "window": self.window(&self.cache.summary()),
            "open": self.opened.as_ref().map(OpenRecordings::status),
            "frames": self.frames.status(),
            "together": { "by": together.by, "playing": together.is_playing, "t": self.relative(together.position) },
            "cache": {
                "budget": cache.budget, "held": cache.accounted, "peak": cache.peak, "blocks": cache.blocks,
                "hits": cache.hits, "misses": cache.misses, "evictions": cache.evictions,
                "source_reads": cache.source_reads, "source_messages": cache.source_messages,
            },
        })
    }

    /// The times that are in memory, as fractions of the recording.
    pub fn loaded(&self, topics: &Topics) -> Value {
        let loaded = self.cache.loaded(topics);
        json!(loaded.fractions)
    }
}

/// The shortest gap, in nanoseconds, that splits a recording into ranges.
const MIN_GAP_NANOS: i64 = 3_600_000_000_000;
/// A splitting gap is also at least this many times as long as all ranges together.
const MIN_GAP_RATIO: i64 = 2;

/// The time ranges of a recording's messages, split where far more time is between them than in them.
fn stretches(cache: &BlockCache) -> Vec<TimeRange> {
    let whole = cache.summary().range;
    let Ok(Some(portions)) = (cache as &dyn Source).outline(whole, u64::MAX) else {
        return vec![whole];
    };
    apart(portions.into_iter().map(|portion| portion.range).collect())
}

/// Merges ranges, except where they are far apart.
fn apart(mut ranges: Vec<TimeRange>) -> Vec<TimeRange> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<TimeRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start.since(last.end) < MIN_GAP_NANOS => *last = last.cover(range),
            _ => joined.push(range),
        }
    }
    let durations = joined.iter().map(|range| range.duration_nanos());
    let all = durations.fold(0_i64, i64::saturating_add);
    let mut found: Vec<TimeRange> = Vec::new();
    for range in joined {
        match found.last_mut() {
            Some(last) if range.start.since(last.end) < all.saturating_mul(MIN_GAP_RATIO) => {
                *last = last.cover(range);
            }
            _ => found.push(range),
        }
    }
    found
}

pub(crate) fn problems(summary: &Summary) -> Value {
    let problem = |problem: &asof_core::Problem| {
        json!({
            "kind": problem.kind.name(), "offset": problem.offset, "topic": problem.topic,
            "message": problem.message,
        })
    };
    summary.problems.iter().take(1000).map(problem).collect()
}

/// The topics, with their counts and types.
pub(crate) fn topics(summary: &Summary) -> Value {
    // A topic may have several channels; the first determines its type.
    let mut topics: BTreeMap<&str, (&Channel, Option<u64>)> = BTreeMap::new();
    for entry in &summary.channels {
        let known = topics
            .entry(&entry.channel.topic)
            .or_insert((&entry.channel, Some(0)));
        known.1 = known.1.zip(entry.messages).map(|(a, b)| a + b);
    }
    let seconds = summary.range.duration_nanos() as f64 * 1e-9;
    let topic = |(topic, (channel, messages)): (&str, (&Channel, Option<u64>))| {
        let hz = messages
            .filter(|&messages| messages > 1 && seconds > 0.0)
            .map(|messages| messages as f64 / seconds);
        let mut told = json!({
            "topic": topic,
            "type": channel.type_name(),
            "encoding": channel.message_encoding,
            "schema_encoding": channel.schema.as_ref().map_or("", |schema| &schema.encoding),
            "messages": messages,
            "hz": hz,
            "role": role_of(channel),
            "plot": plot_of(channel),
        });
        if let Some(recent) = &summary.recent {
            let left = recent.evicted_by_topic.get(topic);
            told["left"] = left.copied().unwrap_or(0).into();
        }
        told
    };
    topics.into_iter().map(topic).collect()
}

/// How the page shows the messages of a channel, besides their fields.
pub(crate) fn role_of(channel: &Channel) -> Option<&'static str> {
    if asof_tf::has_transforms(channel) {
        return Some("frames");
    }
    let archetype = Archetype::of(channel.type_name())?;
    let name = channel.type_name().trim_end_matches('_');
    let has_frame = name.ends_with("Stamped") || name.ends_with("InFrame");
    Some(match archetype.name {
        "Image" | "CompressedImage" | "CompressedVideo" => "image",
        "LaserScan" | "PointCloud" => "points",
        "OccupancyGrid" | "Costmap" | "GridUpdate" | "GridMap" => "grid",
        "Odometry" => "pose",
        // A pose without a frame cannot be placed in a scene.
        "Pose" if has_frame => "pose",
        "Poses" => "path",
        "Point" => "point",
        "Polygon" => "polygon",
        "Range" => "range",
        "Wrench" if has_frame => "wrench",
        "JointState" => "joints",
        "Diagnostics" => "diagnostics",
        "Audio" => "audio",
        "Text" if channel.topic.ends_with("robot_description") => "robot",
        "Marker" | "Scene" => "marker",
        "Log" => "log",
        // A map follows one receiver.
        "NavSatFix" if archetype.list().is_none() => "gps",
        "Twist" => "velocity",
        // Booleans have states instead of a curve.
        "Scalar" if name.ends_with("Bool") => "state",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_of_different_years_are_stretches_of_their_own() {
        const HOUR: i64 = 3_600_000_000_000;
        let range = |start, end| TimeRange::new(Stamp::from_nanos(start), Stamp::from_nanos(end));
        let year = 8766 * HOUR;
        let both = apart(vec![
            range(year, year + HOUR),
            range(0, HOUR),
            range(HOUR / 2, 2 * HOUR),
        ]);
        assert_eq!(both, [range(0, 2 * HOUR), range(year, year + HOUR)]);
        // A pause of some hours in a long day does not part it.
        let day = vec![range(0, 8 * HOUR), range(14 * HOUR, 20 * HOUR)];
        assert_eq!(apart(day), [range(0, 20 * HOUR)]);
        assert_eq!(apart(Vec::new()), []);
    }

    #[test]
    fn a_role_comes_from_what_a_type_means_in_every_flavour() {
        let role = |name: &str| {
            let schema = asof_core::Schema {
                name: name.to_owned(),
                ..asof_core::Schema::default()
            };
            role_of(&Channel {
                schema: Some(Arc::new(schema)),
                ..Channel::default()
            })
        };
        for (name, wanted) in [
            ("sensor_msgs/msg/Image", Some("image")),
            ("sensor_msgs/Image", Some("image")),
            ("foxglove.RawImage", Some("image")),
            ("foxglove_msgs/msg/RawImage", Some("image")),
            ("foxglove.PointCloud", Some("points")),
            ("nav_msgs/msg/Odometry", Some("pose")),
            ("geometry_msgs/msg/PoseStamped", Some("pose")),
            ("foxglove.PoseInFrame", Some("pose")),
            ("geometry_msgs/msg/Pose", None),
            ("tf2_msgs/msg/TFMessage", Some("frames")),
            ("foxglove.FrameTransforms", Some("frames")),
            ("geometry_msgs/msg/TransformStamped", None),
            ("sensor_msgs/msg/NavSatFix", Some("gps")),
            ("geometry_msgs/msg/PoseArray", Some("path")),
            ("sensor_msgs/msg/Range", Some("range")),
            ("std_msgs/msg/String", None),
            ("foxglove.LocationFixes", None),
            ("std_msgs/msg/Bool", Some("state")),
            ("std_msgs/msg/Float64", None),
            ("robot/msg/Anything", None),
        ] {
            assert_eq!(role(name), wanted, "{name}");
        }
    }
}
