//! How much a buffer keeps.

use std::time::Duration;

use crate::history::Bounds;

/// What a buffer may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BufferOptions {
    /// How much each edge keeps, where nothing else is said for it.
    pub limits: Limits,
    /// Bytes of samples in the whole buffer; `None` for no bound. When they are spent, the edge whose samples
    /// are oldest gives up some of them, so that all edges keep about the same stretch of time; the last
    /// two chunks of each, 8 KiB, are its own. A writer waits for no other edge's writer over this: while that edge is
    /// being written it takes from its own.
    pub bytes: Option<u64>,
    /// Frames in the whole buffer.
    pub max_frames: usize,
    /// What becomes of an update that contradicts what an edge is.
    #[cfg_attr(feature = "serde", serde(default))]
    pub conflicts: Conflicts,
}

/// What becomes of an update with another parent than the edge has, of a static update of a dynamic edge or
/// the other way round, and of one that closes a circle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Conflicts {
    /// It is refused: on a robot it is a mistake, as a rule.
    #[default]
    Refuse,
    /// It is stored, as tf2 does. Each sample keeps its own parent, as by
    /// [`reparent`](crate::TransformBuffer::reparent). An edge that becomes static or dynamic drops what it
    /// had. A lookup that meets a circle fails. For recordings, which are as they are.
    LastWins,
}

/// How much an edge keeps. Samples outside of either bound are dropped, and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Limits {
    /// How far behind its newest sample the oldest may be; `None` for no bound.
    pub window: Option<Duration>,
    /// How many samples; `None` for no bound.
    pub count: Option<u64>,
}

/// Counts of what a buffer holds, and of what it dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BufferStats {
    /// Frames.
    pub frames: usize,
    /// Names of frames that were removed, which are still kept.
    pub removed: usize,
    /// Edges, static ones included.
    pub edges: usize,
    /// Samples in all histories.
    pub samples: u64,
    /// Bytes taken for samples.
    pub bytes: u64,
    /// Samples that fell out of their edge's bounds.
    pub evicted: u64,
    /// Samples that were refused because they were too old.
    pub too_old: u64,
}

impl Default for BufferOptions {
    /// 10 s for each edge, as in tf2; 256 MiB and 65,536 frames in all.
    fn default() -> Self {
        BufferOptions {
            limits: Limits {
                window: Some(Duration::from_secs(10)),
                count: None,
            },
            bytes: Some(256 << 20),
            max_frames: 1 << 16,
            conflicts: Conflicts::Refuse,
        }
    }
}

impl BufferOptions {
    /// For recordings: keeps everything.
    pub fn unbounded() -> Self {
        BufferOptions {
            limits: Limits::UNBOUNDED,
            bytes: None,
            max_frames: u32::MAX as usize,
            conflicts: Conflicts::Refuse,
        }
    }

    /// The same with this for updates that contradict what an edge is.
    #[must_use]
    pub fn conflicts(mut self, conflicts: Conflicts) -> Self {
        self.conflicts = conflicts;
        self
    }

    /// The same with this window for each edge.
    #[must_use]
    pub fn window(mut self, window: Duration) -> Self {
        self.limits.window = Some(window);
        self
    }

    /// The same with at most so many samples for each edge.
    #[must_use]
    pub fn count(mut self, count: u64) -> Self {
        self.limits.count = Some(count);
        self
    }

    /// The same with at most so many bytes of samples in the whole buffer.
    #[must_use]
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }
}

impl Limits {
    /// Keep everything.
    pub const UNBOUNDED: Limits = Limits {
        window: None,
        count: None,
    };

    pub(crate) fn bounds(self) -> Bounds {
        let window = self
            .window
            .map_or(i64::MAX, |w| w.as_nanos().min(i64::MAX as u128) as i64);
        Bounds {
            window,
            count: self.count.unwrap_or(u64::MAX).max(1),
        }
    }
}
