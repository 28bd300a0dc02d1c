//! Paths between frames.

// The compiler would not inline these; inlined, a pose stays in registers.
#![allow(clippy::inline_always)]

use std::sync::atomic::{Ordering, fence};

use super::{Edge, Frame, Graph, Miss};
use crate::error::LookupError;
use crate::pool::Pool;
use crate::pose::{Climbed, Pose};
use crate::shelf::Spot;
use crate::sync::{locked, pause};

/// The most optimistic walks through a changing tree before a reader waits for the change.
const MAX_OPTIMISTIC_WALKS: u32 = 64;

/// Why a walk ended early.
pub(crate) enum Stop<'a> {
    Disconnected,
    At(&'a Edge, Miss),
    /// The parents of this frame form a cycle.
    Circle(&'a Frame),
}

/// How to read an edge on the fast path. A trait rather than a closure, so that it is always inlined: a
/// pose that goes through memory costs more than the rest of a short lookup.
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

/// Reads the newest sample of edges and tracks the range of their stamps.
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
    /// Runs `read` on a tree that does not change in the meantime.
    #[inline]
    pub(crate) fn steady<R>(&self, mut read: impl FnMut() -> R) -> R {
        for tries in 0..MAX_OPTIMISTIC_WALKS {
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

    /// Walks from both frames up to their common ancestor and composes the poses that `read` returns for
    /// each edge into the pose of `source` in `target`.
    ///
    /// On a changing tree the result may be wrong, but the walk ends: see [`Graph::steady`].
    #[inline]
    pub(crate) fn climb<'a>(
        &'a self,
        target: &'a Frame,
        source: &'a Frame,
        mut read: impl FnMut(&'a Edge) -> Result<Pose, Miss>,
    ) -> Result<Pose, Stop<'a>> {
        let epoch = self.epoch();
        let (mut low, mut high) = (source, target);
        let mut depth_low = low.depth.load(Ordering::Relaxed);
        let mut depth_high = high.depth.load(Ordering::Relaxed);
        let (mut down, mut up): (Option<Pose>, Option<Pose>) = (None, None);
        while !std::ptr::eq(low, high) {
            // A changing tree can contain a cycle.
            if self.epoch.load(Ordering::Relaxed) != epoch {
                return Err(Stop::Disconnected);
            }
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

    /// The fast path: the same without a reason. `None` also if the tree was changed.
    #[inline(always)]
    pub(crate) fn climb_once<'a>(
        &'a self,
        target: &'a Frame,
        source: &'a Frame,
        mut read: impl ReadEdge,
    ) -> Option<Pose> {
        let epoch = self.epoch();
        if !self.is_in_order() {
            return None;
        }
        let (mut low, mut high) = (source, target);
        let mut depth_low = low.depth.load(Ordering::Relaxed);
        let mut depth_high = high.depth.load(Ordering::Relaxed);
        let (mut down, mut up): (Option<Climbed>, Option<Climbed>) = (None, None);
        // One loop for each side first: most paths go only up or only down.
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
            // A changing tree can contain a cycle.
            if self.epoch.load(Ordering::Relaxed) != epoch {
                return None;
            }
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
        if !self.is_still(epoch) {
            return None;
        }
        Some(match (up, down) {
            (None, None) => Pose::IDENTITY,
            (None, Some(down)) => down.product(),
            (Some(up), None) => up.inverse(),
            (Some(up), Some(down)) => up.inverse().times(&down.product()),
        })
    }

    /// Whether the epoch is still the same, and even. Then everything read of the tree before this call is
    /// valid.
    #[inline(always)]
    pub(crate) fn is_still(&self, epoch: u64) -> bool {
        fence(Ordering::Acquire);
        epoch & 1 == 0 && self.epoch.load(Ordering::Relaxed) == epoch
    }

    /// The edge between the two, if `target` is the parent of `source`: the most common lookup.
    #[inline(always)]
    pub(crate) fn direct<'a>(&'a self, target: &'a Frame, source: &'a Frame) -> Option<&'a Edge> {
        let edge = self.edge_of(source)?;
        (edge.parent() == Spot::of(target)).then_some(edge)
    }

    /// Calls `visit` with every current ancestor of a frame until it returns `false`. Ends on cycles.
    pub(crate) fn climb_now<'a>(
        &'a self,
        from: &'a Frame,
        mut visit: impl FnMut(&'a Frame) -> bool,
    ) {
        let mut circle = Circle::new(from);
        let mut at = from;
        while let Some(edge) = self.edge_of(at) {
            at = self.frames.at(edge.parent());
            if !visit(at) || circle.closes(at) {
                return;
            }
        }
    }

    /// The path up from a frame, as far as `read` has a pose for each edge. `read` also returns the number
    /// of the parent if it is not the current one.
    fn way_up<'a>(
        &'a self,
        from: &'a Frame,
        read: &mut impl FnMut(&'a Edge) -> Result<(Pose, Option<u32>), Miss>,
    ) -> Way<'a> {
        let mut way = Way {
            steps: Vec::new(),
            top: from,
            missed: None,
            is_circle: false,
        };
        let mut circle = Circle::new(from);
        while let Some(edge) = self.edge_of(way.top) {
            let (pose, parent) = match read(edge) {
                Ok(found) => found,
                Err(miss) => {
                    way.missed = Some((edge, miss));
                    break;
                }
            };
            let parent = parent.and_then(|number| self.numbered(number));
            let parent = parent.unwrap_or_else(|| self.frames.at(edge.parent()));
            way.steps.push((way.top, edge, pose));
            way.top = parent;
            if circle.closes(parent) {
                way.is_circle = true;
                break;
            }
        }
        way
    }

    /// The paths from both frames up to their common ancestor, each edge as `read` returns it. For trees
    /// in which a frame can have different parents at different times.
    ///
    /// The result is that of tf2, which keeps the parent with each sample: a frame without a pose at that
    /// time is the top of its tree.
    pub(crate) fn meet<'a>(
        &'a self,
        target: &'a Frame,
        source: &'a Frame,
        mut read: impl FnMut(&'a Edge) -> Result<(Pose, Option<u32>), Miss>,
    ) -> Result<(Steps<'a>, Steps<'a>), Stop<'a>> {
        let mut far = self.way_up(source, &mut read);
        if let Some(place) = far.place_of(target) {
            far.steps.truncate(place);
            return Ok((Vec::new(), far.steps));
        }
        if far.is_circle {
            return Err(Stop::Circle(source));
        }
        let mut near = self.way_up(target, &mut read);
        if let Some(place) = near.place_of(source) {
            near.steps.truncate(place);
            return Ok((near.steps, Vec::new()));
        }
        if near.is_circle {
            return Err(Stop::Circle(target));
        }
        if !std::ptr::eq(near.top, far.top) {
            let missed = near.missed.or(far.missed);
            return Err(missed.map_or(Stop::Disconnected, |(edge, miss)| Stop::At(edge, miss)));
        }
        while let (Some(x), Some(y)) = (near.steps.last(), far.steps.last()) {
            if !std::ptr::eq(x.0, y.0) {
                break;
            }
            near.steps.pop();
            far.steps.pop();
        }
        Ok((near.steps, far.steps))
    }

    /// The edges that end the paths up from both frames because they have no pose.
    pub(crate) fn missed<'a>(
        &'a self,
        frames: [&'a Frame; 2],
        mut read: impl FnMut(&'a Edge) -> Result<(Pose, Option<u32>), Miss>,
    ) -> Vec<&'a Edge> {
        let missed = frames.map(|frame| self.way_up(frame, &mut read).missed);
        let mut edges: Vec<&Edge> = missed.into_iter().flatten().map(|(edge, _)| edge).collect();
        edges.dedup_by(|a, b| std::ptr::eq(*a, *b));
        edges
    }

    /// The pose of `source` in `target`, with the pose of each edge from `read`; see [`Graph::meet`].
    pub(crate) fn compose<'a>(
        &'a self,
        target: &'a Frame,
        source: &'a Frame,
        read: impl FnMut(&'a Edge) -> Result<(Pose, Option<u32>), Miss>,
    ) -> Result<Pose, Stop<'a>> {
        let (near, far) = self.meet(target, source, read)?;
        let product = |steps: Steps<'_>| {
            let mut steps = steps.into_iter().map(|(_, _, pose)| pose);
            let first = steps.next()?;
            Some(steps.fold(first, |total, pose| pose.times(&total)))
        };
        Ok(match (product(near), product(far)) {
            (None, None) => Pose::IDENTITY,
            (None, Some(down)) => down,
            (Some(up), None) => up.inverse(),
            (Some(up), Some(down)) => up.inverse().times(&down),
        })
    }

    /// The edges from `target` and from `source` up to their common ancestor in the current tree.
    pub(crate) fn trace<'a>(
        &'a self,
        target: &'a Frame,
        source: &'a Frame,
    ) -> Result<(Vec<&'a Edge>, Vec<&'a Edge>), Stop<'a>> {
        let (near, far) = self.meet(target, source, |_| Ok((Pose::IDENTITY, None)))?;
        let edges = |steps: Steps<'a>| steps.into_iter().map(|(_, edge, _)| edge).collect();
        Ok((edges(near), edges(far)))
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
            Stop::Circle(frame) => LookupError::Circle {
                frame: frame.name.clone(),
            },
            // The walk reads as it climbs, so it can stop at an edge although the two are not connected.
            Stop::At(..) if self.never_meet(target, source) => {
                self.explain(target, source, t, &Stop::Disconnected)
            }
            Stop::At(edge, miss) => self.explain_edge(edge, t, *miss),
        }
    }

    // Inlined, the error is written once, where the caller wants it.
    #[inline(always)]
    pub(crate) fn explain_edge(&self, edge: &Edge, t: i64, miss: Miss) -> LookupError {
        let parent = self.frames.at(edge.parent()).name.clone();
        let child = self.frames.at(edge.child()).name.clone();
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

    /// Whether two frames are in different trees at all times.
    pub(crate) fn never_meet(&self, target: &Frame, source: &Frame) -> bool {
        let (mut top, mut is_mixed) = (target, false);
        let mut look = |frame: &Frame| {
            let edge = self.edge_of(frame);
            is_mixed |= edge.is_some_and(|edge| edge.history.is_mixed());
        };
        look(target);
        self.climb_now(target, |frame| {
            look(frame);
            top = frame;
            true
        });
        let (top_of_target, mut top) = (top, source);
        look(source);
        self.climb_now(source, |frame| {
            look(frame);
            top = frame;
            true
        });
        !is_mixed && !std::ptr::eq(top_of_target, top)
    }
}

/// Frames with their edges and the poses that were read there.
pub(crate) type Steps<'a> = Vec<(&'a Frame, &'a Edge, Pose)>;

/// A path up from a frame.
struct Way<'a> {
    steps: Steps<'a>,
    /// Where it ended.
    top: &'a Frame,
    /// The edge above without a pose, if that ended it.
    missed: Option<(&'a Edge, Miss)>,
    /// Whether it returned to a frame that it had visited.
    is_circle: bool,
}

impl Way<'_> {
    /// The number of steps to a frame.
    fn place_of(&self, frame: &Frame) -> Option<usize> {
        let place = |step: &(&Frame, &Edge, Pose)| std::ptr::eq(step.0, frame);
        let is_top = std::ptr::eq(self.top, frame).then_some(self.steps.len());
        self.steps.iter().position(place).or(is_top)
    }
}

/// Detects a cycle in a walk, within a few times its length and without a list of frames.
struct Circle<'a> {
    mark: &'a Frame,
    steps: usize,
    next_mark: usize,
}

impl<'a> Circle<'a> {
    fn new(from: &'a Frame) -> Self {
        Circle {
            mark: from,
            steps: 0,
            next_mark: 1,
        }
    }

    /// Whether the walk, now at `frame`, has visited it before.
    fn closes(&mut self, frame: &'a Frame) -> bool {
        if std::ptr::eq(self.mark, frame) {
            return true;
        }
        self.steps += 1;
        if self.steps == self.next_mark {
            self.mark = frame;
            self.next_mark *= 2;
        }
        false
    }
}
