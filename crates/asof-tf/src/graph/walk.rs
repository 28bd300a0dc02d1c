//! Ways between frames, and what is read on them.

// The compiler would keep these apart from their callers; together, a pose stays in registers.
#![allow(clippy::inline_always)]

use std::sync::atomic::{Ordering, fence};

use super::{Edge, Frame, Graph, Miss};
use crate::error::LookupError;
use crate::pool::Pool;
use crate::pose::{Climbed, Pose};
use crate::shelf::Spot;
use crate::sync::{locked, pause};

/// Optimistic walks through a tree that is being changed, before a reader waits for the change.
const WALKS: u32 = 64;

/// Why a walk ended early.
pub(crate) enum Stop<'a> {
    Disconnected,
    At(&'a Edge, Miss),
}

/// How to read an edge on the fast way. A trait and not a closure, so that it can be inlined always:
/// a pose that goes through memory costs more than all the rest of a short lookup.
pub(crate) trait ReadEdge {
    fn edge(&mut self, edge: &Edge) -> Option<Pose>;

    #[inline(never)]
    fn edge_apart(&mut self, edge: &Edge) -> Option<Pose> {
        self.edge(edge)
    }
}

/// Reads edges at a time.
pub(crate) struct AtTime<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) t: i64,
}

impl ReadEdge for AtTime<'_> {
    #[inline(always)]
    fn edge(&mut self, edge: &Edge) -> Option<Pose> {
        edge.at_once(self.pool, self.t)
    }
}

/// Reads the newest sample of edges, and notes the range of their stamps.
pub(crate) struct AtNewest<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) first: &'a mut i64,
    pub(crate) last: &'a mut i64,
}

impl ReadEdge for AtNewest<'_> {
    #[inline(always)]
    fn edge(&mut self, edge: &Edge) -> Option<Pose> {
        let (pose, stamp) = edge.newest_once(self.pool)?;
        if let Some(stamp) = stamp {
            *self.first = stamp.min(*self.first);
            *self.last = stamp.max(*self.last);
        }
        Some(pose)
    }
}

impl Graph {
    /// Does `read` on a tree that does not change meanwhile.
    #[inline]
    pub(crate) fn steady<R>(&self, mut read: impl FnMut() -> R) -> R {
        for tries in 0..WALKS {
            let epoch = self.epoch();
            if epoch & 1 == 0 {
                let answer = read();
                fence(Ordering::Acquire);
                if self.epoch.load(Ordering::Relaxed) == epoch {
                    return answer;
                }
            }
            pause(tries);
        }
        let _change = locked(&self.change);
        read()
    }

    /// Walks from both frames up to where they meet, and composes what `read` gives for each edge into
    /// the pose of `source` in `target`.
    ///
    /// On a tree that is being changed this may go astray, but it ends: see [`Graph::steady`].
    #[inline]
    pub(crate) fn climb<'a>(
        &'a self,
        target: &'a Frame,
        source: &'a Frame,
        mut read: impl FnMut(&'a Edge) -> Result<Pose, Miss>,
    ) -> Result<Pose, Stop<'a>> {
        let (mut low, mut high) = (source, target);
        let mut depth_low = low.depth.load(Ordering::Relaxed);
        let mut depth_high = high.depth.load(Ordering::Relaxed);
        let (mut down, mut up): (Option<Pose>, Option<Pose>) = (None, None);
        while !std::ptr::eq(low, high) {
            let is_low = depth_low >= depth_high;
            let frame = if is_low { low } else { high };
            let edge = self.edge_of(frame).ok_or(Stop::Disconnected)?;
            let pose = read(edge).map_err(|miss| Stop::At(edge, miss))?;
            let parent = self.frames.at(edge.parent());
            if is_low {
                down = Some(down.map_or(pose, |down| pose.times(&down)));
                (low, depth_low) = (parent, depth_low.saturating_sub(1));
            } else {
                up = Some(up.map_or(pose, |up| pose.times(&up)));
                (high, depth_high) = (parent, depth_high.saturating_sub(1));
            }
        }
        Ok(match (up, down) {
            (None, None) => Pose::IDENTITY,
            (None, Some(down)) => down,
            (Some(up), None) => up.inverse(),
            (Some(up), Some(down)) => up.inverse().times(&down),
        })
    }

    /// The same with nothing but a pose or not: the fast way. `None` also if the tree was changed.
    #[inline(always)]
    pub(crate) fn climb_once<'a>(
        &'a self,
        target: &'a Frame,
        source: &'a Frame,
        mut read: impl ReadEdge,
    ) -> Option<Pose> {
        let epoch = self.epoch();
        let (mut low, mut high) = (source, target);
        let mut depth_low = low.depth.load(Ordering::Relaxed);
        let mut depth_high = high.depth.load(Ordering::Relaxed);
        let (mut down, mut up): (Option<Climbed>, Option<Climbed>) = (None, None);
        // One loop for each side first: most ways go up or down only.
        while depth_low > depth_high {
            let edge = self.edge_of(low)?;
            let pose = read.edge(edge)?;
            match &mut down {
                Some(down) => down.add(&pose),
                None => down = Some(Climbed::new(&pose)),
            }
            low = self.frames.at(edge.parent());
            depth_low -= 1;
        }
        while depth_high > depth_low {
            let edge = self.edge_of(high)?;
            let pose = read.edge_apart(edge)?;
            match &mut up {
                Some(up) => up.add(&pose),
                None => up = Some(Climbed::new(&pose)),
            }
            high = self.frames.at(edge.parent());
            depth_high -= 1;
        }
        while !std::ptr::eq(low, high) {
            let (right, left) = (self.edge_of(low)?, self.edge_of(high)?);
            let pose = read.edge_apart(right)?;
            match &mut down {
                Some(down) => down.add(&pose),
                None => down = Some(Climbed::new(&pose)),
            }
            let pose = read.edge_apart(left)?;
            match &mut up {
                Some(up) => up.add(&pose),
                None => up = Some(Climbed::new(&pose)),
            }
            (low, high) = (
                self.frames.at(right.parent()),
                self.frames.at(left.parent()),
            );
        }
        fence(Ordering::Acquire);
        if epoch & 1 != 0 || self.epoch.load(Ordering::Relaxed) != epoch {
            return None;
        }
        Some(match (up, down) {
            (None, None) => Pose::IDENTITY,
            (None, Some(down)) => down.product(),
            (Some(up), None) => up.inverse(),
            (Some(up), Some(down)) => up.inverse().times(&down.product()),
        })
    }

    /// The edge between the two, if `target` is the parent of `source`: what is asked for most.
    #[inline(always)]
    pub(crate) fn direct<'a>(&'a self, target: &'a Frame, source: &'a Frame) -> Option<&'a Edge> {
        let edge = self.edge_of(source)?;
        (edge.parent() == Spot::of(target)).then_some(edge)
    }

    /// The edges from `target` up to where they meet and from `source` up to there, at `t` if frames
    /// were ever reparented, else at any time. Each with its side: `true` on the way from `target`.
    pub(crate) fn trace<'a>(
        &'a self,
        target: &'a Frame,
        source: &'a Frame,
        t: Option<i64>,
    ) -> Option<(Vec<&'a Edge>, Vec<&'a Edge>)> {
        let ups = |frame: &'a Frame| {
            let mut edges = Vec::new();
            let mut at = frame;
            // A tree that is being changed can show a circle; no tree is deeper than it has frames.
            while let Some(edge) = self.edge_of(at).map(|edge| self.era(edge, t)) {
                edges.push(edge);
                at = self.frames.at(edge.parent());
                if edges.len() > self.max_frames {
                    break;
                }
            }
            (edges, at)
        };
        let ((mut a, top_a), (mut b, top_b)) = (ups(target), ups(source));
        if !std::ptr::eq(top_a, top_b) {
            return None;
        }
        while let (Some(x), Some(y)) = (a.last(), b.last()) {
            if !std::ptr::eq(*x, *y) {
                break;
            }
            a.pop();
            b.pop();
        }
        Some((a, b))
    }

    /// The edge that was in force at `t`: the present one, unless an earlier one has samples up to `t`
    /// and the present one has none that old.
    fn era<'a>(&'a self, edge: &'a Edge, t: Option<i64>) -> &'a Edge {
        let Some(t) = t else { return edge };
        let mut at = edge;
        while let Some(previous) = at.previous.map(|spot| self.edges.at(spot)) {
            let starts = at.range(&self.pool).map_or(i64::MAX, |(oldest, _)| oldest);
            if t >= starts
                || (at.is_static() && previous.range(&self.pool).is_none_or(|(_, last)| t > last))
            {
                break;
            }
            at = previous;
        }
        at
    }

    /// The error for a walk that ended early.
    #[cold]
    #[inline(never)]
    pub(crate) fn explain(
        &self,
        target: &Frame,
        source: &Frame,
        t: i64,
        stop: &Stop<'_>,
    ) -> LookupError {
        match stop {
            Stop::Disconnected => LookupError::Disconnected {
                target: target.name.clone(),
                source_frame: source.name.clone(),
            },
            // The walk reads as it climbs, so it can stop at an edge although the two never meet.
            Stop::At(..) if !self.has_eras() && self.root(target) != self.root(source) => {
                self.explain(target, source, t, &Stop::Disconnected)
            }
            Stop::At(edge, miss) => self.explain_edge(edge, t, *miss),
        }
    }

    pub(crate) fn explain_edge(&self, edge: &Edge, t: i64, miss: Miss) -> LookupError {
        let parent = self.frames.at(edge.parent()).name.clone();
        let child = self.frames.at(edge.child).name.clone();
        match miss {
            Miss::Empty => LookupError::NoData { parent, child },
            Miss::Outside { oldest, newest } => LookupError::Extrapolation {
                parent,
                child,
                asked: t.into(),
                oldest: oldest.into(),
                newest: newest.into(),
            },
        }
    }

    fn root<'a>(&'a self, frame: &'a Frame) -> &'a Frame {
        let mut at = frame;
        // No further than the depth says, in a tree that is being changed.
        for _ in 0..=frame.depth.load(Ordering::Relaxed) {
            match self.edge_of(at) {
                Some(edge) => at = self.frames.at(edge.parent()),
                None => break,
            }
        }
        at
    }
}
