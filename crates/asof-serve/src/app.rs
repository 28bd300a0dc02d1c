//! What all clients share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use asof_blocks::{BlockCache, Options};
use asof_core::{Source, Stamp, Summary, Topics};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use crate::frames::Frames;
use crate::guard::{Guard, Refusals};
use crate::options::Limits;
use crate::retained::Retained;
use crate::series::Looks;
use crate::tracks::Tracks;

/// One recording, one cache, and everything that was worked out from it.
pub(crate) struct App {
    pub name: String,
    pub cache: BlockCache,
    /// What the cache is over, where that is a running robot.
    pub retained: Option<Retained>,
    /// Times are counted from here.
    pub start: Stamp,
    pub frames: Frames,
    pub looks: Looks,
    pub tracks: Tracks,
    pub limits: Limits,
    pub guard: Guard,
    pub refusals: Refusals,
    /// How many more WebSockets there can be.
    pub clients: Arc<Semaphore>,
    /// How many requests may read at once.
    pub readers: Semaphore,
    /// Where those are who play together.
    pub together: watch::Sender<Together>,
    /// Becomes true when the server ends.
    pub over: watch::Sender<bool>,
    sessions: AtomicU64,
    /// Messages that gave way, of clients that have gone.
    pub dropped: AtomicU64,
}

/// The shared play head: the last thing that one of those who play together did.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Together {
    /// Who did it.
    pub by: u64,
    pub is_playing: bool,
    /// `None`: as fast as can be.
    pub speed: Option<f64>,
    pub position: Stamp,
    pub since: Instant,
}

/// What is served.
pub(crate) enum What {
    Recorded(Arc<dyn Source>),
    /// A running robot, and the time from which times are counted.
    Live(Retained, Stamp),
}

/// What one client's player and its pictures take, with everything that is on its way.
const OTHERS_AT_LEAST: u64 = 64 << 20;

impl App {
    pub fn new(what: What, name: &str, guard: Guard, limits: Limits, cache_bytes: u64) -> Self {
        let (cache, retained, start) = match what {
            What::Recorded(source) => {
                // The rest is for what players have read ahead and what waits to be sent: it is memory as well.
                let others = (cache_bytes / 4).max(OTHERS_AT_LEAST);
                let blocks = cache_bytes.saturating_sub(others).max(cache_bytes / 4);
                let cache = BlockCache::over(source, Options::with_budget(blocks));
                let range = cache.summary().range;
                let start = if range.is_empty() {
                    Stamp::EPOCH
                } else {
                    range.start
                };
                (cache, None, start)
            }
            What::Live(retained, start) => {
                // It is in memory already: nothing of it is ever old enough to be kept a second time.
                let options = Options {
                    growing: Some(Duration::MAX),
                    ..Options::with_budget(1 << 20)
                };
                let cache = BlockCache::new(retained.clone(), options);
                (cache, Some(retained), start)
            }
        };
        let is_live = retained.is_some();
        App {
            name: name.to_owned(),
            start,
            frames: Frames::new(&cache, retained.as_ref()),
            looks: Looks::new(&cache, limits.series_bytes / 2, is_live),
            tracks: Tracks::new(&cache, start, limits.series_bytes / 2, is_live),
            retained,
            guard,
            refusals: Refusals::default(),
            clients: Arc::new(Semaphore::new(limits.clients)),
            readers: Semaphore::new(8),
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

    /// A number for a new session, never zero.
    pub fn next_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Nanoseconds since the start of the recording, as clients count.
    pub fn relative(&self, stamp: Stamp) -> i64 {
        stamp.since(self.start)
    }

    pub fn absolute(&self, t: i64) -> Stamp {
        self.start.plus_nanos(t)
    }

    /// What the recording holds.
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
            "duration": if self.retained.is_none() { summary.range.duration_nanos() } else { self.relative(summary.range.end).max(0) },
            "is_empty": summary.range.is_empty(),
            "messages": summary.messages,
            "chunks": summary.chunks,
            "compression": summary.compression,
            "topics": self.topics(&summary),
            "frame_topics": self.frames.topics(),
            "attachments": summary.attachments.iter().map(attachment).collect::<Vec<_>>(),
            "metadata": summary.metadata.iter().map(|entry| &entry.name).collect::<Vec<_>>(),
            "problems": problems(&summary),
            "live": self.retained.is_some(),
            "window": self.window(),
            "version": env!("CARGO_PKG_VERSION"),
        })
    }

    /// The topics, with what they hold.
    pub fn topics(&self, summary: &Summary) -> Value {
        let mut topics = topics(summary);
        let left = self.retained.as_ref().map(Retained::left_by_topic);
        for topic in topics.as_array_mut().into_iter().flatten() {
            let left = left.as_ref().zip(topic["topic"].as_str());
            if let Some(count) = left.map(|(left, name)| left.get(name).copied().unwrap_or(0)) {
                topic["left"] = count.into();
            }
        }
        topics
    }

    /// What is held of a running robot; nothing for a recording.
    pub fn window(&self) -> Value {
        let Some(retained) = &self.retained else {
            return Value::Null;
        };
        let (range, counts) = (retained.summary().range, retained.counts());
        let retention = retained.retention();
        let ends = (!range.is_empty()).then_some(range);
        json!({
            "from": ends.map_or(0, |range| self.relative(range.start)),
            "to": ends.map_or(0, |range| self.relative(range.end)),
            "age": u64::try_from(retention.age.as_nanos()).unwrap_or(u64::MAX),
            "budget": retention.bytes,
            "bytes": counts.bytes,
            "messages": counts.messages,
            "left": counts.left,
            "crowded_out": counts.crowded_out,
            "refused": counts.refused,
            "connected": retained.is_connected(),
        })
    }

    /// How the server is doing.
    pub fn status(&self) -> Value {
        let cache = self.cache.statistics();
        let together = self.together.borrow();
        json!({
            "clients": self.limits.clients - self.clients.available_permits(),
            "sessions": self.sessions.load(Ordering::Relaxed),
            "dropped": self.dropped.load(Ordering::Relaxed),
            "refused": self.refusals.counts(),
            "window": self.window(),
            "together": { "by": together.by, "playing": together.is_playing, "t": self.relative(together.position) },
            "cache": {
                "budget": cache.budget, "held": cache.accounted, "peak": cache.peak, "blocks": cache.blocks,
                "hits": cache.hits, "misses": cache.misses, "evictions": cache.evictions,
                "source_reads": cache.source_reads, "source_messages": cache.source_messages,
            },
        })
    }

    /// The times that are held in memory, as parts of the recording.
    pub fn loaded(&self, topics: &Topics) -> Value {
        let loaded = self.cache.loaded(topics);
        json!(loaded.fractions)
    }
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

fn topics(summary: &Summary) -> Value {
    // A topic may have several channels; the first names its type.
    let mut topics: BTreeMap<&str, (&asof_core::Channel, Option<u64>)> = BTreeMap::new();
    for entry in &summary.channels {
        let known = topics
            .entry(&entry.channel.topic)
            .or_insert((&entry.channel, Some(0)));
        known.1 = known.1.zip(entry.messages).map(|(a, b)| a + b);
    }
    let seconds = summary.range.duration_nanos() as f64 * 1e-9;
    let topic = |(topic, (channel, messages)): (&str, (&asof_core::Channel, Option<u64>))| {
        let hz = messages
            .filter(|&messages| messages > 1 && seconds > 0.0)
            .map(|messages| messages as f64 / seconds);
        json!({
            "topic": topic,
            "type": channel.type_name(),
            "encoding": channel.message_encoding,
            "schema_encoding": channel.schema.as_ref().map_or("", |schema| &schema.encoding),
            "messages": messages,
            "hz": hz,
            "role": role_of(channel.type_name()),
        })
    };
    topics.into_iter().map(topic).collect()
}

/// What a page does with messages of a type, beside showing their fields.
fn role_of(type_name: &str) -> Option<&'static str> {
    let plain = type_name.replace("/msg/", "/");
    Some(match plain.as_str() {
        "sensor_msgs/CompressedImage"
        | "sensor_msgs/Image"
        | "foxglove.CompressedImage"
        | "foxglove.RawImage" => "image",
        "sensor_msgs/LaserScan"
        | "sensor_msgs/PointCloud2"
        | "foxglove.LaserScan"
        | "foxglove.PointCloud" => "points",
        "nav_msgs/OccupancyGrid" | "foxglove.Grid" => "grid",
        "nav_msgs/Odometry"
        | "geometry_msgs/PoseStamped"
        | "geometry_msgs/PoseWithCovarianceStamped"
        | "foxglove.PoseInFrame"
        | "foxglove.Odometry" => "pose",
        "nav_msgs/Path" | "geometry_msgs/PoseArray" | "foxglove.PosesInFrame" => "path",
        "visualization_msgs/Marker" | "visualization_msgs/MarkerArray" | "foxglove.SceneUpdate" => {
            "marker"
        }
        "rcl_interfaces/Log" | "rosgraph_msgs/Log" | "foxglove.Log" => "log",
        "sensor_msgs/NavSatFix" | "foxglove.LocationFix" => "gps",
        "tf2_msgs/TFMessage"
        | "tf/tfMessage"
        | "foxglove.FrameTransform"
        | "foxglove.FrameTransforms" => "frames",
        "geometry_msgs/Twist" | "geometry_msgs/TwistStamped" => "velocity",
        "std_msgs/Bool" => "state",
        _ => return None,
    })
}
