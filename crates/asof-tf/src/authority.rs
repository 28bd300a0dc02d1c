//! Authorities: which writer wrote which edge.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use asof_core::Stamp;
use nalgebra::Isometry3;

use crate::buffer::TransformBuffer;
use crate::error::UpdateError;
use crate::frame_ref::FrameRef;
use crate::name::FrameName;
use crate::sync::locked;

/// Writes to a buffer under a name, such as a topic or a node, so that the writer of each edge is known.
///
/// ```
/// use asof_tf::TransformBuffer;
/// use nalgebra::Isometry3;
///
/// let buffer = TransformBuffer::new();
/// let (amcl, ekf) = (buffer.writer("/amcl"), buffer.writer("/ekf"));
/// amcl.update("map", "odom", 10.into(), Isometry3::identity())?;
/// ekf.update("map", "odom", 20.into(), Isometry3::identity())?;
/// let rivals = buffer.rivals();
/// assert_eq!(rivals[0].to_string(), "frame 'odom' is placed by both '/amcl' and '/ekf'");
/// # Ok::<(), asof_tf::UpdateError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TransformWriter {
    buffer: TransformBuffer,
    authority: u32,
}

/// Two writers of one edge. Their samples are mixed, which is usually a mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rivals {
    /// The child frame of the edge.
    pub child: FrameName,
    /// The earlier writer.
    pub first: String,
    /// The later writer.
    pub second: String,
}

impl std::fmt::Display for Rivals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Rivals {
            child,
            first,
            second,
        } = self;
        write!(
            f,
            "frame '{child}' is placed by both '{first}' and '{second}'"
        )
    }
}

/// The names of the writers, and which of them write the same edge. Bounded: further names are not
/// distinguished.
#[derive(Default)]
pub(crate) struct Authorities {
    names: Vec<String>,
    /// The numbers of the names.
    numbers: HashMap<String, u32>,
    rivals: Vec<(FrameName, u32, u32)>,
}

const MAX_NAMES: usize = 1_024;
const MAX_RIVALS: usize = 256;

impl TransformBuffer {
    /// A writer with a name; see [`rivals`](TransformBuffer::rivals) and
    /// [`EdgeFacts::authority`](crate::EdgeFacts::authority).
    pub fn writer(&self, authority: &str) -> TransformWriter {
        TransformWriter {
            buffer: self.clone(),
            authority: self.authority(authority),
        }
    }

    /// Pairs of writers of the same edge, each pair once; the first 256 of them. Worth a warning.
    pub fn rivals(&self) -> Vec<Rivals> {
        let known = locked(&self.graph().authorities);
        let name = |number: u32| known.name(number).unwrap_or_default().to_owned();
        let rivals = known.rivals.iter().map(|(child, first, second)| Rivals {
            child: child.clone(),
            first: name(*first),
            second: name(*second),
        });
        rivals.collect()
    }

    /// The number of an authority; zero if there are too many.
    pub(crate) fn authority(&self, name: &str) -> u32 {
        let mut known = locked(&self.graph().authorities);
        if let Some(number) = known.numbers.get(name) {
            return *number;
        }
        if known.names.len() >= MAX_NAMES {
            return 0;
        }
        known.names.push(name.to_owned());
        let number = u32::try_from(known.names.len()).unwrap_or(0);
        known.numbers.insert(name.to_owned(), number);
        number
    }

    pub(crate) fn authority_name(&self, number: u32) -> Option<String> {
        let known = locked(&self.graph().authorities);
        known.name(number).map(str::to_owned)
    }

    /// Records the writer of an edge.
    pub(crate) fn note_authority(&self, child: impl FrameRef, authority: u32) {
        let graph = self.graph();
        let Some(frame) = child.get(graph) else {
            return;
        };
        let Some(edge) = graph.edge_of(frame) else {
            return;
        };
        if authority == 0 || edge.authority.load(Ordering::Relaxed) == authority {
            return;
        }
        let before = edge.authority.swap(authority, Ordering::Relaxed);
        if before == 0 || before == authority {
            return;
        }
        let pair = (before.min(authority), before.max(authority));
        let mut known = locked(&graph.authorities);
        let is_known = |(name, first, second): &(FrameName, u32, u32)| {
            *name == frame.name && (*first, *second) == pair
        };
        if known.rivals.len() < MAX_RIVALS && !known.rivals.iter().any(is_known) {
            known.rivals.push((frame.name.clone(), pair.0, pair.1));
        }
    }
}

impl Authorities {
    fn name(&self, number: u32) -> Option<&str> {
        let place = (number as usize).checked_sub(1)?;
        self.names.get(place).map(String::as_str)
    }
}

impl TransformWriter {
    /// Like [`TransformBuffer::update`].
    ///
    /// # Errors
    /// As there.
    pub fn update(
        &self,
        parent: impl FrameRef,
        child: impl FrameRef,
        stamp: Stamp,
        isometry: Isometry3<f64>,
    ) -> Result<(), UpdateError> {
        self.buffer.update(parent, child, stamp, isometry)?;
        self.buffer.note_authority(child, self.authority);
        Ok(())
    }

    /// Like [`TransformBuffer::update_static`].
    ///
    /// # Errors
    /// As there.
    pub fn update_static(
        &self,
        parent: impl FrameRef,
        child: impl FrameRef,
        isometry: Isometry3<f64>,
    ) -> Result<(), UpdateError> {
        self.buffer.update_static(parent, child, isometry)?;
        self.buffer.note_authority(child, self.authority);
        Ok(())
    }
}
