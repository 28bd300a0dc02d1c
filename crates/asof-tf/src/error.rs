//! Why something could not be stored, or not be answered.

use asof_core::Stamp;

use crate::name::FrameName;

/// Why an update was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// A name that no frame can have.
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
        "edge '{parent}' -> '{child}': '{child}' is a child of '{present}' already; a frame has one parent \
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
    /// The edge would close a circle.
    #[error(
        "edge '{parent}' -> '{child}': '{child}' is above '{parent}' already, so this would close a circle"
    )]
    Cycle {
        /// The parent.
        parent: FrameName,
        /// The child.
        child: FrameName,
    },
    /// A static update on a dynamic edge, or the other way round.
    #[error("edge '{parent}' -> '{child}' is {}, and got an update that is not", if *.is_static { "static" } else { "dynamic" })]
    KindConflict {
        /// The parent.
        parent: FrameName,
        /// The child.
        child: FrameName,
        /// What the edge is.
        is_static: bool,
    },
    /// A translation with not-a-number or an infinity in it.
    #[error("edge '{parent}' -> '{child}': the translation is not finite")]
    NotFinite {
        /// The parent.
        parent: String,
        /// The child.
        child: String,
    },
    /// A rotation that is not even nearly of unit length.
    #[error("edge '{parent}' -> '{child}': the rotation's quaternion has length {length}, not 1")]
    NotUnit {
        /// The parent.
        parent: String,
        /// The child.
        child: String,
        /// Its length.
        length: f64,
    },
    /// A sample from before everything that the edge may keep. It is counted.
    #[error(
        "edge '{parent}' -> '{child}': stamp {} is older than all that its history may keep (newest {})",
        .stamp.as_seconds_text(), .newest.as_seconds_text()
    )]
    TooOld {
        /// The parent.
        parent: FrameName,
        /// The child.
        child: FrameName,
        /// The stamp of the sample.
        stamp: Stamp,
        /// The newest stamp that the edge has.
        newest: Stamp,
    },
    /// The buffer has as many frames as it may have.
    #[error(
        "edge '{parent}' -> '{child}': the buffer has {limit} frames, as many as its options allow"
    )]
    TooManyFrames {
        /// The parent.
        parent: String,
        /// The child.
        child: String,
        /// The limit.
        limit: usize,
    },
    /// A [`FrameId`](crate::FrameId) that another buffer gave out, or whose frame was removed.
    #[error("a frame id of another transform buffer, or of a frame that was removed, was given")]
    ForeignId,
}

/// Why there is no transform.
///
/// Small and cheap to make; its text is only written when it is shown.
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
    /// The time is outside of what an edge on the way has.
    #[error(
        "edge '{parent}' -> '{child}' was asked for {}, {} its {} sample: it has {} to {}",
        .asked.as_seconds_text(), Miss(.asked, .oldest, .newest),
        if .asked < .oldest { "oldest" } else { "newest" },
        .oldest.as_seconds_text(), .newest.as_seconds_text()
    )]
    Extrapolation {
        /// The parent.
        parent: FrameName,
        /// The child.
        child: FrameName,
        /// The time that was asked for.
        asked: Stamp,
        /// The oldest time that it has.
        oldest: Stamp,
        /// The newest time that it has.
        newest: Stamp,
    },
    /// The parents of a frame lead back to it at that time, so that it has no place.
    #[error("above frame '{frame}' the parents go round in a circle at that time")]
    Circle {
        /// The frame.
        frame: FrameName,
    },
    /// The latest transform is older than was asked for.
    #[error(
        "the latest transform of '{source_frame}' in '{target}' is from {}, {:?} ago; at most {:?} was asked for",
        .stamp.as_seconds_text(), .now.duration_since(*.stamp), .now.duration_since(*.oldest)
    )]
    Stale {
        /// The target frame.
        target: FrameName,
        /// The source frame.
        source_frame: FrameName,
        /// Its stamp.
        stamp: Stamp,
        /// When it was asked for.
        now: Stamp,
        /// The oldest stamp that was asked for.
        oldest: Stamp,
    },
    /// A [`FrameId`](crate::FrameId) that another buffer gave out, or whose frame was removed.
    #[error("a frame id of another transform buffer, or of a frame that was removed, was given")]
    ForeignId,
}

impl LookupError {
    /// A short name of the sort of error, for programs: `unknown_frame`, `disconnected`, `no_data`,
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

    /// By how many nanoseconds an extrapolation missed what is there.
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
