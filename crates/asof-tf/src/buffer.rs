//! The buffer: what it keeps, and how transforms get in.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use asof_core::Stamp;
use nalgebra::Isometry3;

use crate::error::{LookupError, UpdateError};
use crate::frame_ref::sealed::Resolve;
use crate::frame_ref::{FrameId, FrameRef};
use crate::graph::{Edge, Frame, Graph, NameError};
use crate::history::{Inserted, Words};
use crate::name::{FrameName, strip};
use crate::observe::{Observer, Update};
use crate::options::{Limits, Options, Stats};
use crate::pose::{BadPose, Pose};

/// Frames, the edges between them, and the history of each edge.
///
/// A handle: clones share the same frames. `Send + Sync`; every method takes `&self`. Lookups take no
/// lock that a writer holds, writers on different edges do not wait for each other.
#[derive(Clone)]
pub struct TransformBuffer {
    graph: Arc<Graph>,
    options: Options,
}

impl Default for TransformBuffer {
    fn default() -> Self {
        TransformBuffer::new()
    }
}

impl TransformBuffer {
    /// An empty buffer with the [default options](Options::default).
    pub fn new() -> Self {
        TransformBuffer::with_options(Options::default())
    }

    /// An empty buffer.
    pub fn with_options(options: Options) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let bytes = options.bytes.unwrap_or(u64::MAX);
        TransformBuffer {
            graph: Arc::new(Graph::new(id, bytes, options.max_frames)),
            options,
        }
    }

    /// What this handle was made with.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Stores the pose of `child` in `parent` at `stamp`: a point given in `child` becomes, multiplied
    /// by it, the point in `parent`.
    ///
    /// The first update makes the edge, and any frame that is new. Zero is a time like any other.
    /// Stamps may come in any order: a late sample goes where it belongs, one with a stamp that is
    /// there already takes its place (tf2 in ROS 1 kept the first; the last is what the sender meant).
    ///
    /// # Errors
    /// [`UpdateError`] says what was wrong; nothing is changed then. A second parent is refused here:
    /// see [`reparent`](TransformBuffer::reparent). A static edge does not become dynamic (tf2 drops
    /// its history then, ROS 1's tf2 ignored the update; either hides a mistake).
    #[inline]
    pub fn update(
        &self,
        parent: impl FrameRef,
        child: impl FrameRef,
        stamp: Stamp,
        isometry: Isometry3<f64>,
    ) -> Result<(), UpdateError> {
        let pose = Pose::checked(&isometry).map_err(|bad| self.bad_pose(parent, child, bad))?;
        if let Some(edge) = self.existing(parent, child)
            && !edge.is_static()
        {
            return self.insert(edge, stamp, &pose);
        }
        let edge = self.edge_for(parent, child, None)?;
        self.insert(edge, stamp, &pose)
    }

    /// Stores the pose of `child` in `parent` for all times.
    ///
    /// # Errors
    /// As for [`update`](TransformBuffer::update).
    pub fn update_static(
        &self,
        parent: impl FrameRef,
        child: impl FrameRef,
        isometry: Isometry3<f64>,
    ) -> Result<(), UpdateError> {
        let pose = Pose::checked(&isometry).map_err(|bad| self.bad_pose(parent, child, bad))?;
        let edge = self.edge_for(parent, child, Some(&pose))?;
        self.set_fixed(edge, &pose);
        Ok(())
    }

    /// Moves `child` under another parent, from `stamp` on.
    ///
    /// The samples under the old parent stay valid for their times: a lookup at a time that they cover
    /// goes through the old parent. Between the last old and the first new sample there is nothing to
    /// interpolate, so lookups there are refused. Where `child` has `parent` already, this is an
    /// [`update`](TransformBuffer::update).
    ///
    /// # Errors
    /// As for [`update`](TransformBuffer::update), but for the second parent.
    pub fn reparent(
        &self,
        parent: impl FrameRef,
        child: impl FrameRef,
        stamp: Stamp,
        isometry: Isometry3<f64>,
    ) -> Result<(), UpdateError> {
        let pose = Pose::checked(&isometry).map_err(|bad| self.bad_pose(parent, child, bad))?;
        if let Some(edge) = self.existing(parent, child) {
            if edge.is_static() {
                return Err(self.kind_conflict(edge));
            }
            return self.insert(edge, stamp, &pose);
        }
        let mut change = self.graph.change();
        let named = |error| self.bad_name(parent, child, error);
        let below = child
            .intern(&self.graph, &mut change)
            .map_err(|e| named((e, false)))?;
        let above = parent
            .intern(&self.graph, &mut change)
            .map_err(|e| named((e, true)))?;
        let bounds = self.options.limits.bounds();
        let edge = self.graph.connect(&change, above, below, None, bounds)?;
        drop(change);
        self.graph.waiters.wake(i64::MAX);
        self.insert(edge, stamp, &pose)
    }

    /// Stores many samples of one edge, in any order: sorts them once. Returns how many were too old.
    ///
    /// # Errors
    /// As for [`update`](TransformBuffer::update); nothing of the batch is stored then.
    pub fn extend_edge(
        &self,
        parent: impl FrameRef,
        child: impl FrameRef,
        samples: impl IntoIterator<Item = (Stamp, Isometry3<f64>)>,
    ) -> Result<u64, UpdateError> {
        let mut words = Vec::new();
        for (stamp, isometry) in samples {
            let pose = Pose::checked(&isometry).map_err(|bad| self.bad_pose(parent, child, bad))?;
            words.push(pose.words(stamp.nanos()));
        }
        if words.is_empty() {
            return Ok(0);
        }
        let edge = self.edge_for(parent, child, None)?;
        Ok(self.merge(edge, words))
    }

    /// Stores many updates of any edges, in any order. Those that are refused are returned, with the
    /// reason; samples that are too old are only [counted](Stats::too_old).
    pub fn extend(&self, updates: impl IntoIterator<Item = Update>) -> Vec<(Update, UpdateError)> {
        let mut refused = Vec::new();
        let mut edges: HashMap<u32, (&Edge, Vec<Words>)> = HashMap::new();
        for update in updates {
            if let Err(error) = self.sort_in(&update, &mut edges) {
                refused.push((update, error));
            }
        }
        for (edge, words) in edges.into_values() {
            self.merge(edge, words);
        }
        refused
    }

    fn sort_in<'a>(
        &'a self,
        update: &Update,
        edges: &mut HashMap<u32, (&'a Edge, Vec<Words>)>,
    ) -> Result<(), UpdateError> {
        let (parent, child) = (&update.parent, &update.child);
        let Some(stamp) = update.stamp else {
            return self.update_static(parent, child, update.isometry);
        };
        let pose =
            Pose::checked(&update.isometry).map_err(|bad| self.bad_pose(parent, child, bad))?;
        let edge = self.edge_for(parent, child, None)?;
        let words = pose.words(stamp.nanos());
        let number = self.graph.frames.at(edge.child).id;
        edges
            .entry(number)
            .or_insert_with(|| (edge, Vec::new()))
            .1
            .push(words);
        Ok(())
    }

    /// Gives one edge limits of its own; they hold from its next update on.
    ///
    /// # Errors
    /// When `child` is unknown, or has no parent.
    pub fn set_limits(&self, child: impl FrameRef, limits: Limits) -> Result<(), LookupError> {
        let frame = child.find(&self.graph)?;
        let edge = self.graph.edge_of(frame).ok_or(LookupError::UnknownFrame {
            frame: frame.name.clone(),
        })?;
        edge.set_bounds(limits.bounds());
        Ok(())
    }

    /// Forgets all samples; frames, static edges and the shape of the tree stay. For a clock that
    /// jumped back, or a recording that starts again.
    pub fn clear(&self) {
        for edge in self
            .graph
            .all()
            .filter_map(|frame| self.graph.edge_of(frame))
            .flat_map(|edge| self.graph.with_previous(edge))
            .filter(|edge| !edge.is_static())
        {
            let held = edge.history.hold();
            edge.history.clear(&held, &self.graph.pool);
        }
    }

    /// The id of a frame, made if there is none yet.
    ///
    /// # Errors
    /// When the name cannot be that of a frame, or there are too many frames.
    pub fn frame(&self, name: &str) -> Result<FrameId, UpdateError> {
        let mut change = self.graph.change();
        let frame = name
            .intern(&self.graph, &mut change)
            .map_err(|error| self.bad_name(name, name, (error, false)))?;
        Ok(self.id(frame))
    }

    /// The id of a frame, if it is known.
    pub fn find(&self, name: &str) -> Option<FrameId> {
        self.graph.find(name).map(|frame| self.id(frame))
    }

    /// Watches: the latest transform of every edge now, then every update. At most `capacity` updates
    /// wait to be seen; the oldest are lost first, and counted.
    pub fn observe(&self, capacity: usize) -> Observer {
        // No edge comes or goes while we look; each is read under its latch, so that an update is
        // either among the first transforms or comes after them, never both and never neither.
        let change = self.graph.change();
        let queue = self.graph.observers.add(capacity);
        let mut first = VecDeque::new();
        for frame in self.graph.all() {
            let Some(edge) = self.graph.edge_of(frame) else {
                continue;
            };
            let _held = edge.history.hold();
            if let Ok((pose, stamp)) = edge.newest(&self.graph.pool) {
                first.push_back(self.report(edge, stamp.map(Stamp::from_nanos), &pose));
            }
            queue.gather(frame.id);
        }
        queue.gathered_all();
        drop(change);
        Observer::new(queue, first)
    }

    /// Counts of what is held and what was dropped.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            bytes: self.graph.pool.bytes(),
            ..Stats::default()
        };
        for frame in self.graph.all() {
            stats.frames += 1;
            let Some(edge) = self.graph.edge_of(frame) else {
                continue;
            };
            stats.edges += 1;
            for edge in self.graph.with_previous(edge) {
                stats.samples += edge.history.len();
                stats.evicted += edge.history.evicted();
                stats.too_old += edge.limits().too_old.load(Ordering::Relaxed);
            }
        }
        stats
    }

    /// The newest stamp of an edge that is there, dynamic, with this parent.
    pub(crate) fn newest_of(&self, parent: &str, child: &str) -> Option<Stamp> {
        let edge = self.existing(parent, child)?;
        edge.range(&self.graph.pool)
            .map(|(_, newest)| newest.into())
    }

    #[inline]
    pub(crate) fn graph(&self) -> &Graph {
        &self.graph
    }

    pub(crate) fn id(&self, frame: &Frame) -> FrameId {
        FrameId {
            buffer: self.graph.id,
            number: frame.id,
        }
    }

    /// The edge, if it is there with this parent.
    #[inline]
    fn existing(&self, parent: impl FrameRef, child: impl FrameRef) -> Option<&Edge> {
        // The child first: where it is new, the parent need not be looked for.
        let edge = self.graph.edge_of(child.get(&self.graph)?)?;
        let above = parent.get(&self.graph)?;
        std::ptr::eq(self.graph.frames.at(edge.parent()), above).then_some(edge)
    }

    /// The edge, made if there is none: static if there is a pose, else dynamic.
    #[cold]
    #[inline(never)]
    fn edge_for(
        &self,
        parent: impl FrameRef,
        child: impl FrameRef,
        pose: Option<&Pose>,
    ) -> Result<&Edge, UpdateError> {
        let graph = &*self.graph;
        let of_kind = |edge| self.of_kind(edge, pose.is_some());
        if let Some(edge) = self.existing(parent, child) {
            return of_kind(edge);
        }
        let mut change = graph.change();
        let (above, below) = (parent.get(graph), child.get(graph));
        let (named_above, named_below) = (
            |error| self.bad_name(parent, child, (error, true)),
            |error| self.bad_name(parent, child, (error, false)),
        );
        if let Some(edge) = below.and_then(|frame| graph.edge_of(frame)) {
            let present = graph.frames.at(edge.parent());
            if above == Some(present) {
                // Someone else made it, just now.
                return of_kind(edge);
            }
            if above.is_none() {
                parent.vet().map_err(named_above)?;
            }
            return Err(UpdateError::SecondParent {
                parent: FrameName::unchecked(&parent.text(graph)),
                child: graph.frames.at(edge.child).name.clone(),
                present: present.name.clone(),
            });
        }
        // What is refused leaves no frame behind: all is looked at before anything is made.
        let new_above = match above {
            Some(_) => None,
            None => Some(parent.vet().map_err(named_above)?),
        };
        let new_below = match below {
            Some(_) => None,
            None => Some(child.vet().map_err(named_below)?),
        };
        if let (Some(name), Some(other)) = (&new_above, &new_below)
            && name == other
        {
            return Err(UpdateError::SelfEdge {
                parent: name.clone(),
                child: other.clone(),
            });
        }
        let more = usize::from(new_above.is_some()) + usize::from(new_below.is_some());
        graph.check_room(&change, more).map_err(named_below)?;
        let above = match new_above {
            Some(name) => Some(graph.make(&mut change, name).map_err(named_above)?),
            None => above,
        };
        let below = match new_below {
            Some(name) => Some(graph.make(&mut change, name).map_err(named_below)?),
            None => below,
        };
        let (Some(above), Some(below)) = (above, below) else {
            return Err(UpdateError::ForeignId);
        };
        let bounds = self.options.limits.bounds();
        let edge = graph.connect(&change, above, below, pose, bounds)?;
        if let (Some(pose), true) = (pose, graph.observers.is_any()) {
            let _held = edge.history.hold();
            graph
                .observers
                .publish(below.id, &self.report(edge, None, pose));
        }
        drop(change);
        if graph.waiters.is_due(i64::MAX - 1) {
            graph.waiters.wake(i64::MAX);
        }
        Ok(edge)
    }

    fn of_kind<'a>(&self, edge: &'a Edge, is_static: bool) -> Result<&'a Edge, UpdateError> {
        if edge.is_static() == is_static {
            return Ok(edge);
        }
        Err(self.kind_conflict(edge))
    }

    #[inline]
    fn insert(&self, edge: &Edge, stamp: Stamp, pose: &Pose) -> Result<(), UpdateError> {
        let words = pose.words(stamp.nanos());
        let held = edge.history.hold();
        let inserted = edge
            .history
            .insert(&held, &self.graph.pool, edge.bounds(), &words, |end| {
                self.graph.make_room(end);
            });
        if inserted == Inserted::TooOld {
            return Err(self.too_old(edge, stamp));
        }
        let is_due = edge.waiters.is_due(stamp.nanos());
        if self.graph.observers.is_any() {
            let child = self.graph.frames.at(edge.child).id;
            let update = self.report(edge, Some(stamp), pose);
            self.graph.observers.publish(child, &update);
        }
        drop(held);
        if is_due {
            edge.waiters.wake(stamp.nanos());
        }
        Ok(())
    }

    fn set_fixed(&self, edge: &Edge, pose: &Pose) {
        let Some(fixed) = edge.fixed() else { return };
        if fixed.read(&edge.history, Pose::of) == *pose {
            return;
        }
        let change = self.graph.change();
        let held = edge.history.hold();
        fixed.set(&held, &pose.words(0));
        // Paths have folded the old pose into their steps.
        self.graph.bump(&change);
        if self.graph.observers.is_any() {
            let child = self.graph.frames.at(edge.child).id;
            self.graph
                .observers
                .publish(child, &self.report(edge, None, pose));
        }
    }

    fn merge(&self, edge: &Edge, words: Vec<Words>) -> u64 {
        let sorted = sorted_once(words);
        let Some(last) = sorted.last().map(|words| words[0] as i64) else {
            return 0;
        };
        let held = edge.history.hold();
        let too_old = edge
            .history
            .merge(&held, &self.graph.pool, edge.bounds(), &sorted, |end| {
                self.graph.make_room(end);
            });
        edge.limits().too_old.fetch_add(too_old, Ordering::Relaxed);
        let is_due = edge.waiters.is_due(last);
        if self.graph.observers.is_any() {
            let child = self.graph.frames.at(edge.child).id;
            for words in &sorted {
                let stamp = Stamp::from_nanos(words[0] as i64);
                let update = self.report(edge, Some(stamp), &Pose::of_words(words));
                self.graph.observers.publish(child, &update);
            }
        }
        drop(held);
        if is_due {
            edge.waiters.wake(last);
        }
        too_old
    }

    fn report(&self, edge: &Edge, stamp: Option<Stamp>, pose: &Pose) -> Update {
        Update {
            parent: self.graph.frames.at(edge.parent()).name.clone(),
            child: self.graph.frames.at(edge.child).name.clone(),
            stamp,
            isometry: pose.isometry(),
        }
    }

    #[cold]
    fn too_old(&self, edge: &Edge, stamp: Stamp) -> UpdateError {
        edge.limits().too_old.fetch_add(1, Ordering::Relaxed);
        let newest = edge
            .range(&self.graph.pool)
            .map_or(stamp, |(_, n)| n.into());
        UpdateError::TooOld {
            parent: self.graph.frames.at(edge.parent()).name.clone(),
            child: self.graph.frames.at(edge.child).name.clone(),
            stamp,
            newest,
        }
    }

    #[cold]
    fn kind_conflict(&self, edge: &Edge) -> UpdateError {
        UpdateError::KindConflict {
            parent: self.graph.frames.at(edge.parent()).name.clone(),
            child: self.graph.frames.at(edge.child).name.clone(),
            is_static: edge.is_static(),
        }
    }

    #[cold]
    pub(crate) fn bad_pose(
        &self,
        parent: impl FrameRef,
        child: impl FrameRef,
        bad: BadPose,
    ) -> UpdateError {
        let parent = strip(&parent.text(&self.graph)).to_owned();
        let child = strip(&child.text(&self.graph)).to_owned();
        match bad {
            BadPose::Translation => UpdateError::NotFinite { parent, child },
            BadPose::Rotation(length) => UpdateError::NotUnit {
                parent,
                child,
                length,
            },
        }
    }

    #[cold]
    fn bad_name(
        &self,
        parent: impl FrameRef,
        child: impl FrameRef,
        (error, is_parent): (NameError, bool),
    ) -> UpdateError {
        let short = |text: Cow<'_, str>| strip(&text).chars().take(1024).collect::<String>();
        let (parent, child) = (
            short(parent.text(&self.graph)),
            short(child.text(&self.graph)),
        );
        match error {
            NameError::Bad(problem) => UpdateError::BadName {
                name: if is_parent { &parent } else { &child }.clone(),
                parent,
                child,
                problem,
            },
            NameError::TooMany(limit) => UpdateError::TooManyFrames {
                parent,
                child,
                limit,
            },
            NameError::Foreign => UpdateError::ForeignId,
        }
    }
}

/// The samples by growing stamp; of equal ones only the last given.
fn sorted_once(words: Vec<Words>) -> Vec<Words> {
    if words
        .windows(2)
        .all(|pair| (pair[0][0] as i64) < pair[1][0] as i64)
    {
        return words;
    }
    // Sorting keys and gathering once moves each sample once, not some dozen times.
    let mut keys: Vec<(i64, u32)> = words
        .iter()
        .enumerate()
        .map(|(place, words)| (words[0] as i64, place as u32))
        .collect();
    keys.sort_unstable();
    let mut sorted: Vec<Words> = Vec::with_capacity(keys.len());
    for (stamp, place) in keys {
        match sorted.last_mut().filter(|last| last[0] as i64 == stamp) {
            Some(last) => *last = words[place as usize],
            None => sorted.push(words[place as usize]),
        }
    }
    sorted
}

impl PartialEq for Frame {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl fmt::Debug for TransformBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransformBuffer")
            .field("options", &self.options)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
