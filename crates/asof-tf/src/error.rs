//! Errors of updates and lookups.

use asof_core::Stamp;

use crate::name::FrameName;

/// Why an update was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// An invalid frame name.
    #[error("edge '{parent}' -> '{child}': {name:?} is not a name for a frame: {problem}")]
    BadName {
        /// The parent that was given.
        parent: String,
        /// The child that was given.
        child: String,
        /// The name in question.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// An edge from a frame to itself.
    #[error("edge '{parent}' -> '{child}': a frame cannot be its own parent")]
    SelfEdge {
        /// The parent.
        parent: FrameName,
        /// The child.
        child: FrameName,
    },
    /// The child has another parent already.
    #[error(
        "edge '{parent}' -> '{child}': '{child}' is already a child of '{present}'; a frame has one parent \
         (use `reparent` if it has really moved)"
    )]
    SecondParent {
        /// The refused parent.
        parent: FrameName,
        /// The child.
        child: FrameName,
        /// The parent that the child has.
        present: FrameName,
    },
    /// The edge would create a cycle.
    #[error(
        "edge '{parent}' -> '{child}': '{child}' is already above '{parent}', so this would create a cycle"
    )]
    Cycle {
        /// The parent.
        parent: FrameName,
        /// The child.
        child: FrameName,
    },
    /// A static update on a dynamic edge, or the other way round.
    #[error("edge '{parent}' -> '{child}' is {}", if *.is_static { "static, but the update is dynamic" } else { "dynamic, but the update is static" })]
    KindConflict {
        /// The parent.
        parent: FrameName,
        /// The child.
        child: FrameName,
        /// Whether the edge is static.
        is_static: bool,
    },
    /// A translation with NaN or infinity.
    #[error("edge '{parent}' -> '{child}': the translation is not finite")]
    NotFinite {
        /// The parent.
        parent: String,
        /// The child.
        child: String,
    },
    /// A rotation that is far from unit length.
    #[error("edge '{parent}' -> '{child}': the rotation's quaternion has length {length}, not 1")]
    NotUnit {
        /// The parent.
        parent: String,
        /// The child.
        child: String,
        /// Its length.
        length: f64,
    },
    /// A sample too old for the edge's bounds. It is counted.
    #[error(
        "edge '{parent}' -> '{child}': stamp {} is older than its history keeps (newest {})",
        .stamp.as_seconds_text(), .newest.as_seconds_text()
    )]
    TooOld {
        /// The parent.
        parent: FrameName,
        /// The child.
        child: FrameName,
        /// The stamp of the sample.
        stamp: Stamp,
        /// The newest stamp of the edge.
        newest: Stamp,
    },
    /// The buffer is at its limit of frames.
    #[error(
        "edge '{parent}' -> '{child}': the buffer already has {limit} frames, its limit (`max_frames`)"
    )]
    TooManyFrames {
        /// The parent.
        parent: String,
        /// The child.
        child: String,
        /// The limit.
        limit: usize,
    },
    /// A [`FrameId`](crate::FrameId) of another buffer or of a removed frame.
    #[error("the frame id belongs to another transform buffer or to a removed frame")]
    ForeignId,
}

/// Why there is no transform.
///
/// Small and cheap to create; its text is formatted only when it is displayed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// No update has ever named this frame.
    #[error("frame '{frame}' is unknown")]
    UnknownFrame {
        /// The frame.
        frame: FrameName,
    },
    /// Both frames are known, but no chain of edges joins them.
    #[error(
        "frames '{target}' and '{source_frame}' are not connected: they are in different trees"
    )]
    Disconnected {
        /// The target frame.
        target: FrameName,
        /// The source frame.
        source_frame: FrameName,
    },
    /// An edge on the way has no sample at all.
    #[error("edge '{parent}' -> '{child}' has no sample")]
    NoData {
        /// The parent.
        parent: FrameName,
        /// The child.
        child: FrameName,
    },
    /// The time is outside the range of an edge on the way.
    #[error(
        "edge '{parent}' -> '{child}' has no transform at {}, {} its {} sample; it has {} to {}",
        .asked.as_seconds_text(), Miss(.asked, .oldest, .newest),
        if .asked < .oldest { "oldest" } else { "newest" },
        .oldest.as_seconds_text(), .newest.as_seconds_text()
    )]
    Extrapolation {
        /// The parent.
        parent: FrameName,
        /// The child.
        child: FrameName,
        /// The requested time.
        asked: Stamp,
        /// The time of its oldest sample.
        oldest: Stamp,
        /// The time of its newest sample.
        newest: Stamp,
    },
    /// The parents of a frame form a cycle at that time, so its pose is undefined.
    #[error("the parents of frame '{frame}' form a cycle at that time")]
    Circle {
        /// The frame.
        frame: FrameName,
    },
    /// The latest transform is older than allowed.
    #[error(
        "the latest transform of '{source_frame}' in '{target}' is from {}, {:?} ago; at most {:?} is allowed",
        .stamp.as_seconds_text(), .now.duration_since(*.stamp), .now.duration_since(*.oldest)
    )]
    Stale {
        /// The target frame.
        target: FrameName,
        /// The source frame.
        source_frame: FrameName,
        /// Its stamp.
        stamp: Stamp,
        /// The time of the request.
        now: Stamp,
        /// The oldest stamp allowed.
        oldest: Stamp,
    },
    /// A [`FrameId`](crate::FrameId) of another buffer or of a removed frame.
    #[error("the frame id belongs to another transform buffer or to a removed frame")]
    ForeignId,
}

impl LookupError {
    /// A short name of the kind of error, for programs: `unknown_frame`, `disconnected`, `no_data`,
    /// `extrapolation_past`, `extrapolation_future`, `circle`, `stale`, `foreign_id`.
    pub fn kind(&self) -> &'static str {
        match self {
            LookupError::UnknownFrame { .. } => "unknown_frame",
            LookupError::Disconnected { .. } => "disconnected",
            LookupError::NoData { .. } => "no_data",
            LookupError::Extrapolation { asked, oldest, .. } if asked < oldest => {
                "extrapolation_past"
            }
            LookupError::Extrapolation { .. } => "extrapolation_future",
            LookupError::Circle { .. } => "circle",
            LookupError::Stale { .. } => "stale",
            LookupError::ForeignId => "foreign_id",
        }
    }

    /// By how many nanoseconds the time is outside the range, for an extrapolation.
    pub fn missed_by(&self) -> Option<u64> {
        match self {
            LookupError::Extrapolation {
                asked,
                oldest,
                newest,
                ..
            } => Some(distance(*asked, *oldest, *newest)),
            _ => None,
        }
    }
}

fn distance(asked: Stamp, oldest: Stamp, newest: Stamp) -> u64 {
    if asked < oldest {
        asked.nanos().abs_diff(oldest.nanos())
    } else {
        asked.nanos().abs_diff(newest.nanos())
    }
}

/// "0.250000000 s before", "1.000000000 s after".
struct Miss<'a>(&'a Stamp, &'a Stamp, &'a Stamp);

impl std::fmt::Display for Miss<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Miss(asked, oldest, newest) = *self;
        let nanos = distance(*asked, *oldest, *newest);
        let side = if asked < oldest { "before" } else { "after" };
        write!(
            f,
            "{}.{:09} s {side}",
            nanos / 1_000_000_000,
            nanos % 1_000_000_000
        )
    }
}
