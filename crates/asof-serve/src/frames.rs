//! Where the frames were, at any time of a recording, in bounded memory.

use std::sync::{Arc, Mutex, PoisonError};

use asof_blocks::{BlockCache, HeadClass};
use asof_core::{Message, Query, Source, Stamp, TimeRange};
use asof_tf::ros::{self, Encoding};
use asof_tf::{Extrapolation, Options, TransformBuffer};
use nalgebra::{Isometry3, Quaternion, Translation3, UnitQuaternion};
use serde::Serialize;

use crate::record::Decoders;

/// The transforms of a recording.
///
/// A recording with few transforms is read once. Of one with many, a buffer holds a stretch of time and what
/// came shortly before it; a handful of them is kept.
pub(crate) struct Frames {
    cache: BlockCache,
    topics: Vec<String>,
    /// Whether one buffer holds all.
    is_small: bool,
    buffers: Mutex<Vec<(i64, Arc<TransformBuffer>)>>,
}

/// A pose as `[x, y, z, qx, qy, qz, qw]`.
pub(crate) type Pose = [f64; 7];

/// An edge of the tree, and where the child was in its parent.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct EdgeAt {
    pub parent: String,
    pub child: String,
    #[serde(rename = "static")]
    pub is_static: bool,
    pub pose: Option<Pose>,
    /// Samples per second, as far as they have been read.
    pub hz: f64,
}

/// Up to so many messages are read at once and kept.
const SMALL: u64 = 50_000;
/// A buffer is for this long, in nanoseconds,
const STRETCH: i64 = 10_000_000_000;
/// with this much before,
const BEFORE: i64 = 10_000_000_000;
/// and this much behind it, so that there is something to interpolate with.
const BEHIND: i64 = 1_000_000_000;
const MOST_BUFFERS: usize = 6;

impl Frames {
    pub fn new(cache: &BlockCache) -> Self {
        let summary = cache.summary();
        let of_frames = summary
            .channels
            .iter()
            .filter(|entry| kind_of(entry.channel.type_name()).is_some());
        let mut topics: Vec<String> = of_frames
            .clone()
            .map(|entry| entry.channel.topic.clone())
            .collect();
        topics.sort();
        topics.dedup();
        let messages: Option<u64> = of_frames.map(|entry| entry.messages).sum();
        Frames {
            cache: cache.clone(),
            topics,
            is_small: messages.is_some_and(|messages| messages <= SMALL),
            buffers: Mutex::default(),
        }
    }

    /// The topics that transforms come on.
    pub fn topics(&self) -> &[String] {
        &self.topics
    }

    /// Every edge, as it was at `at`. Where there is no sample at that time, the nearest counts.
    pub fn at(&self, at: Stamp) -> Vec<EdgeAt> {
        let buffer = self.buffer(at);
        let edges = buffer.edges().into_iter().map(|edge| {
            let (parent, child) = (edge.parent.as_str(), edge.child.as_str());
            let pose = buffer.lookup_with(parent, child, at, Extrapolation::Hold(u64::MAX));
            // Before an edge was first heard of, nobody knew of it.
            let is_known = edge.is_static
                || edge
                    .range
                    .is_some_and(|range| range.start <= at.plus_nanos(BEHIND));
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

    /// The root of the tree that `frame` is in, and where `frame` was in it at `stamp`; `logged` is when that was said.
    pub fn in_root(&self, frame: &str, stamp: Stamp, logged: Stamp) -> Option<(String, Pose)> {
        // A clock that is far off says nothing about the recording's time.
        let is_near = stamp.since(logged).unsigned_abs() < STRETCH as u64;
        let stamp = if is_near { stamp } else { logged };
        let buffer = self.buffer(logged);
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

    fn buffer(&self, at: Stamp) -> Arc<TransformBuffer> {
        let key = if self.is_small {
            0
        } else {
            at.nanos().div_euclid(STRETCH)
        };
        // One at a time: who comes second finds what the first has read.
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = buffers.iter().position(|(known, _)| *known == key) {
            let entry = buffers.remove(found);
            let buffer = Arc::clone(&entry.1);
            buffers.push(entry);
            return buffer;
        }
        let range = if self.is_small {
            TimeRange::ALL
        } else {
            let start = Stamp::from_nanos(key.saturating_mul(STRETCH));
            TimeRange::new(
                start.plus_nanos(-BEFORE),
                start.plus_nanos(STRETCH + BEHIND),
            )
        };
        let buffer = Arc::new(self.read(range));
        if buffers.len() >= MOST_BUFFERS {
            buffers.remove(0);
        }
        buffers.push((key, Arc::clone(&buffer)));
        buffer
    }

    fn read(&self, range: TimeRange) -> TransformBuffer {
        let buffer = TransformBuffer::with_options(Options::unbounded());
        let is_static = |topic: &&String| topic.rsplit('/').next() == Some("tf_static");
        let (fixed, moving): (Vec<&String>, Vec<&String>) = self.topics.iter().partition(is_static);
        let mut decoders = Decoders::default();
        for (topics, range, is_static) in [(fixed, TimeRange::ALL, true), (moving, range, false)] {
            if topics.is_empty() {
                continue;
            }
            let query = Query::topics(topics).between(range);
            for batch in self.cache.read_as(&query, HeadClass::Scrub) {
                let batch = match batch {
                    Ok(batch) => batch,
                    Err(error) => {
                        tracing::warn!("transforms cannot be read on: {error}");
                        break;
                    }
                };
                for message in batch.iter() {
                    add(&buffer, &message.to_message(), is_static, &mut decoders);
                }
            }
        }
        buffer
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransformKind {
    Ros,
    Foxglove,
}

fn kind_of(type_name: &str) -> Option<TransformKind> {
    match type_name {
        "tf2_msgs/msg/TFMessage" | "tf2_msgs/TFMessage" | "tf/tfMessage" => {
            Some(TransformKind::Ros)
        }
        "foxglove.FrameTransform" | "foxglove.FrameTransforms" => Some(TransformKind::Foxglove),
        _ => None,
    }
}

/// Adds what a message says; what cannot be used is left out here, `asof tf` tells of it.
fn add(buffer: &TransformBuffer, message: &Message, is_static: bool, decoders: &mut Decoders) {
    let transforms = match kind_of(message.channel.type_name()) {
        Some(TransformKind::Ros) => {
            let is_ros1 = message.channel.message_encoding == "ros1";
            let encoding = if is_ros1 {
                Encoding::Ros1
            } else {
                Encoding::Cdr
            };
            let transforms = ros::tf_message(encoding, &message.payload).unwrap_or_default();
            transforms
                .into_iter()
                .map(|one| (one.parent, one.child, one.stamp, one.isometry))
                .collect()
        }
        Some(TransformKind::Foxglove) => of_foxglove(message, decoders),
        None => return,
    };
    for (parent, child, stamp, isometry) in transforms {
        let added = if is_static {
            buffer.update_static(parent.as_str(), child.as_str(), isometry)
        } else {
            buffer.update(parent.as_str(), child.as_str(), stamp, isometry)
        };
        if let Err(error) = added {
            tracing::trace!("a transform is left out: {error}");
        }
    }
}

fn of_foxglove(
    message: &Message,
    decoders: &mut Decoders,
) -> Vec<(String, String, Stamp, Isometry3<f64>)> {
    let Ok(text) = decoders.json(message) else {
        return Vec::new();
    };
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(&text) else {
        return Vec::new();
    };
    let all = match value.get("transforms").and_then(|all| all.as_array()) {
        Some(all) => all.clone(),
        None => vec![value],
    };
    let one = |value: serde_json::Value| {
        let text = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
        let part = |of: &str, name: &str| value.get(of)?.get(name)?.as_f64();
        let stamp = value.get("timestamp");
        let field = |names: [&str; 2]| names.iter().find_map(|name| stamp?.get(name)?.as_i64());
        let stamp = field(["seconds", "sec"])
            .zip(field(["nanos", "nsec"]))
            .map_or(message.log_time, |(seconds, nanos)| {
                Stamp::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
            });
        let translation = ["x", "y", "z"].map(|name| part("translation", name).unwrap_or(0.0));
        let [x, y, z] = ["x", "y", "z"].map(|name| part("rotation", name).unwrap_or(0.0));
        let w = part("rotation", "w").unwrap_or(1.0);
        let rotation = UnitQuaternion::new_unchecked(Quaternion::new(w, x, y, z));
        let isometry = Isometry3::from_parts(Translation3::from(translation), rotation);
        Some((
            text("parent_frame_id")?,
            text("child_frame_id")?,
            stamp,
            isometry,
        ))
    };
    all.into_iter().filter_map(one).collect()
}

fn parts_of(pose: &Isometry3<f64>) -> Pose {
    let (place, turn) = (&pose.translation, &pose.rotation);
    [place.x, place.y, place.z, turn.i, turn.j, turn.k, turn.w]
}
