//! Options and statistics of a buffer.

use std::time::Duration;

use crate::history::Bounds;

/// Options of a [`TransformBuffer`](crate::TransformBuffer).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BufferOptions {
    /// How much each edge keeps, unless it has its own limits.
    pub limits: Limits,
    /// The most bytes of samples in the buffer; `None` for no bound. When they are spent, samples of the edge with the
    /// oldest ones are evicted, so that all edges keep about the same stretch of time; each keeps its last two chunks,
    /// 8 KiB. A late sample that is older than what its edge has evicted is refused, so that no lookup interpolates across
    /// a hole. A writer never waits for another edge's writer over this: while that edge is being written it evicts its
    /// own samples.
    pub bytes: Option<u64>,
    /// The most frames in the buffer.
    pub max_frames: usize,
    /// What happens to an update that conflicts with its edge.
    #[cfg_attr(feature = "serde", serde(default))]
    pub conflicts: Conflicts,
}

/// What happens to an update with a different parent, to a static update of a dynamic edge or vice versa, and to one
/// that creates a cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Conflicts {
    /// It is refused: on a robot it is usually a mistake.
    #[default]
    Refuse,
    /// It is stored, as in tf2. Each sample keeps its own parent, as with
    /// [`reparent`](crate::TransformBuffer::reparent). An edge that becomes static or dynamic drops what it had. A
    /// lookup that meets a cycle fails. For recordings, which cannot be corrected.
    LastWins,
}

/// How much an edge keeps. Samples beyond either bound are dropped and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Limits {
    /// How much older than its newest sample the oldest may be; `None` for no bound.
    pub window: Option<Duration>,
    /// The most samples; `None` for no bound.
    pub count: Option<u64>,
}

/// Counts of what a buffer holds and of what it dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BufferStats {
    /// Frames.
    pub frames: usize,
    /// Names of removed frames, which are still kept.
    pub removed: usize,
    /// Edges, static ones included.
    pub edges: usize,
    /// Samples in all histories.
    pub samples: u64,
    /// Bytes allocated for samples.
    pub bytes: u64,
    /// Samples evicted by their edge's bounds.
    pub evicted: u64,
    /// Samples refused because they were too old.
    pub too_old: u64,
}

impl Default for BufferOptions {
    /// 10 s for each edge, as in tf2; 256 MiB and 65,536 frames in total.
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

    /// The same with this handling of conflicting updates.
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

    /// The same with at most this many samples for each edge.
    #[must_use]
    pub fn count(mut self, count: u64) -> Self {
        self.limits.count = Some(count);
        self
    }

    /// The same with at most this many bytes of samples in the buffer.
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
