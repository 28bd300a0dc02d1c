//! Where the frames were, at any time of a recording, in bounded memory.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use asof_blocks::{BlockCache, HeadClass};
use asof_core::{Query, Source, Stamp, Summary, TimeRange, Topics};
use asof_tf::{Extrapolation, Options, TransformBuffer, has_transforms};
use nalgebra::Isometry3;
use serde::Serialize;

use crate::retained::Retained;

/// The transforms of a recording.
///
/// A recording with few transforms is read once. Of one with many, a buffer holds a stretch of time and what
/// came shortly before it; a handful of them is kept. Those of a running robot go into one buffer as they come.
pub(crate) struct Frames {
    cache: BlockCache,
    /// Whether one buffer holds all.
    is_small: bool,
    buffers: Mutex<Vec<(i64, Arc<TransformBuffer>)>>,
    live: Option<LiveFrames>,
}

struct LiveFrames {
    retained: Retained,
    buffer: Arc<TransformBuffer>,
    /// How far the robot's transforms have been taken in.
    next: Mutex<u64>,
    /// How far the robot's clock is behind ours, in nanoseconds; zero where they agree.
    behind: AtomicI64,
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
/// Clocks that differ by less than this, in nanoseconds, are the same clock.
const CLOCKS_AGREE: u64 = 2_000_000_000;

impl Frames {
    pub fn new(cache: &BlockCache, retained: Option<&Retained>) -> Self {
        let summary = cache.summary();
        let of_frames = summary
            .channels
            .iter()
            .filter(|entry| has_transforms(&entry.channel));
        let messages: Option<u64> = of_frames.map(|entry| entry.messages).sum();
        let live = retained.map(|retained| {
            let options = Options::default().window(retained.retention().age);
            LiveFrames {
                retained: retained.clone(),
                buffer: Arc::new(TransformBuffer::with_options(options)),
                next: Mutex::default(),
                behind: AtomicI64::new(0),
            }
        });
        Frames {
            cache: cache.clone(),
            is_small: messages.is_some_and(|messages| messages <= SMALL),
            buffers: Mutex::default(),
            live,
        }
    }

    /// The topics that transforms come on.
    pub fn topics(&self) -> Vec<String> {
        topics(&self.cache.summary())
    }

    /// Takes in what a running robot has said since. Static transforms are said once: they must not leave unheard.
    pub fn catch_up(&self) {
        let Some(live) = &self.live else {
            return;
        };
        let mut next = live.next.lock().unwrap_or_else(PoisonError::into_inner);
        let tail = live
            .retained
            .tail(&Topics::Named(topics(&live.retained.summary())), *next);
        *next = tail.next;
        if tail.batch.is_empty() {
            return;
        }
        let problems = live.buffer.absorb(&tail.batch);
        let edges = live.buffer.edges();
        let moving = edges.iter().filter(|edge| !edge.is_static);
        if let Some(newest) = moving
            .filter_map(|edge| edge.range.map(|range| range.end))
            .max()
        {
            let behind = tail.batch.range().end.since(newest);
            // Some are sent ahead of their time, some late.
            let agrees = behind.unsigned_abs() < CLOCKS_AGREE;
            live.behind
                .store(if agrees { 0 } else { behind }, Ordering::Relaxed);
        }
        for problem in problems {
            tracing::debug!("a transform is left out: {}", problem.message);
        }
    }

    /// Every edge, as it was at `at`. Where there is no sample at that time, the nearest counts.
    pub fn at(&self, at: Stamp) -> Vec<EdgeAt> {
        let buffer = self.buffer(at);
        let at = self.on_their_clock(at);
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
        let buffer = self.buffer(logged);
        let logged = self.on_their_clock(logged);
        // A clock that is far off says nothing about the recording's time.
        let is_near = stamp.since(logged).unsigned_abs() < STRETCH as u64;
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

    /// What a running robot's clock said at a time of ours.
    fn on_their_clock(&self, at: Stamp) -> Stamp {
        let behind = self
            .live
            .as_ref()
            .map_or(0, |live| live.behind.load(Ordering::Relaxed));
        at.plus_nanos(-behind)
    }

    fn buffer(&self, at: Stamp) -> Arc<TransformBuffer> {
        if let Some(live) = &self.live {
            self.catch_up();
            return Arc::clone(&live.buffer);
        }
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
        let is_static = |topic: &String| topic.rsplit('/').next() == Some("tf_static");
        let (fixed, moving): (Vec<String>, Vec<String>) =
            self.topics().into_iter().partition(is_static);
        for (topics, range) in [(fixed, TimeRange::ALL), (moving, range)] {
            if topics.is_empty() {
                continue;
            }
            let query = Query::topics(topics).between(range);
            for batch in self.cache.read_as(&query, HeadClass::Scrub) {
                match batch {
                    // What cannot be used is left out here; `asof tf` tells of it.
                    Ok(batch) => drop(buffer.absorb(&batch)),
                    Err(error) => {
                        tracing::warn!("transforms cannot be read on: {error}");
                        break;
                    }
                }
            }
        }
        buffer
    }
}

fn topics(summary: &Summary) -> Vec<String> {
    let mut topics: Vec<String> = summary
        .channels
        .iter()
        .filter(|entry| has_transforms(&entry.channel))
        .map(|entry| entry.channel.topic.clone())
        .collect();
    topics.sort();
    topics.dedup();
    topics
}

fn parts_of(pose: &Isometry3<f64>) -> Pose {
    let (place, turn) = (&pose.translation, &pose.rotation);
    [place.x, place.y, place.z, turn.i, turn.j, turn.k, turn.w]
}
