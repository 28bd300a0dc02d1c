//! Updates that are more than another sample: new frames and edges, other parents, other kinds, many samples at
//! once.

use std::collections::HashMap;

use asof_core::Stamp;
use nalgebra::Isometry3;

use crate::buffer::TransformBuffer;
use crate::error::UpdateError;
use crate::frame_ref::FrameRef;
use crate::graph::{Change, Edge, Frame};
use crate::history::{Bounds, Inserted, Words};
use crate::name::FrameName;
use crate::observe::Update;
use crate::options::Conflicts;
use crate::pose::Pose;
use crate::wait::{MOVED, NEW_EDGE};

/// What is to be stored for an edge.
#[derive(Clone, Copy)]
pub(crate) struct Sample<'a> {
    /// `None` for a static edge.
    stamp: Option<Stamp>,
    pose: &'a Pose,
    /// Whether a new parent is intended.
    is_reparent: bool,
}

impl<'a> Sample<'a> {
    pub(crate) fn at(stamp: Stamp, pose: &'a Pose) -> Self {
        Sample {
            stamp: Some(stamp),
            pose,
            is_reparent: false,
        }
    }

    pub(crate) fn fixed(pose: &'a Pose) -> Self {
        Sample {
            stamp: None,
            pose,
            is_reparent: false,
        }
    }

    /// The same with a new parent.
    pub(crate) fn reparenting(self) -> Self {
        Sample {
            is_reparent: true,
            ..self
        }
    }
}

impl TransformBuffer {
    /// Stores many samples of one edge, in any order; they are sorted once. Returns how many were too old.
    ///
    /// # Errors
    /// As for [`update`](TransformBuffer::update); then nothing of the batch is stored.
    pub fn extend_edge(
        &self,
        parent: impl FrameRef,
        child: impl FrameRef,
        samples: impl IntoIterator<Item = (Stamp, Isometry3<f64>)>,
    ) -> Result<u64, UpdateError> {
        let mut gathered = match self.existing(parent, child) {
            Some((edge, _)) => {
                let newest = edge.range(&self.graph().pool).map(|(_, newest)| newest);
                Gathered::new(edge.bounds(), newest)
            }
            None => Gathered::new(self.options().limits.bounds(), None),
        };
        for (stamp, isometry) in samples {
            let pose = Pose::checked(&isometry).map_err(|bad| self.bad_pose(parent, child, bad))?;
            gathered.add(pose.words(stamp.nanos()));
        }
        let (sorted, pruned) = gathered.sorted();
        let Some((last, others)) = sorted.split_last() else {
            return Ok(0);
        };
        if let Some(too_old) = self.merge(parent, child, &sorted, pruned) {
            return Ok(too_old);
        }
        // The newest one decides whether they are accepted, and creates the frames and the edge.
        let stamp = Stamp::from_nanos(last[0] as i64);
        let pose = Pose::of_words(last);
        match self.store(parent, child, Sample::at(stamp, &pose)) {
            Ok(()) => {}
            Err(UpdateError::TooOld { .. }) => {
                let too_old = pruned + others.len() as u64;
                if let Some(edge) = child
                    .get(self.graph())
                    .and_then(|f| self.graph().edge_of(f))
                {
                    edge.count_too_old(too_old);
                }
                return Ok(too_old + 1);
            }
            Err(error) => return Err(error),
        }
        let merged = self.merge_as(parent, child, others, pruned);
        Ok(merged.unwrap_or(pruned + others.len() as u64))
    }

    /// Stores many updates of any edges, in any order. Refused updates are returned with the reason; samples that
    /// are too old are only [counted](crate::BufferStats::too_old).
    ///
    /// ```
    /// # use asof_core::Stamp;
    /// # use asof_tf::TransformBuffer;
    /// # use nalgebra::Isometry3;
    /// # let at = |seconds: i64| Stamp::from_nanos(seconds * 1_000_000_000);
    /// # let buffer = TransformBuffer::new();
    /// # buffer.update_static("base_link", "lidar", Isometry3::translation(0.0, 0.0, 0.3))?;
    /// # // One metre a second, forward.
    /// # buffer.update("odom", "base_link", at(0), Isometry3::identity())?;
    /// # buffer.update("odom", "base_link", at(2), Isometry3::translation(2.0, 0.0, 0.0))?;
    /// let updates = buffer.observe(100).drain();
    /// let copy = TransformBuffer::new();
    /// assert!(copy.extend(updates).is_empty());
    /// assert_eq!(copy.frames().len(), buffer.frames().len());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn extend(&self, updates: impl IntoIterator<Item = Update>) -> Vec<(Update, UpdateError)> {
        let mut refused = Vec::new();
        let mut places: HashMap<(FrameName, FrameName), usize> = HashMap::new();
        let mut edges: Vec<Vec<Update>> = Vec::new();
        for update in updates {
            let (parent, child) = (&update.parent, &update.child);
            let checked = match (update.stamp, Pose::checked(&update.isometry)) {
                (_, Err(bad)) => Err(self.bad_pose(parent, child, bad)),
                (None, Ok(_)) => self.update_static(parent, child, update.isometry),
                (Some(_), Ok(_)) => {
                    let key = (parent.clone(), child.clone());
                    let place = *places.entry(key).or_insert(edges.len());
                    if place == edges.len() {
                        edges.push(Vec::new());
                    }
                    edges[place].push(update);
                    continue;
                }
            };
            if let Err(error) = checked {
                refused.push((update, error));
            }
        }
        for updates in edges {
            let Some((parent, child)) = updates
                .first()
                .map(|first| (first.parent.clone(), first.child.clone()))
            else {
                continue;
            };
            let samples = updates
                .iter()
                .filter_map(|update| Some((update.stamp?, update.isometry)));
            if let Err(error) = self.extend_edge(&parent, &child, samples) {
                refused.extend(updates.into_iter().map(|update| (update, error.clone())));
            }
        }
        refused
    }

    /// Merges samples into a dynamic edge that has this parent now; `None` if there is none.
    fn merge(
        &self,
        parent: impl FrameRef,
        child: impl FrameRef,
        sorted: &[Words],
        pruned: u64,
    ) -> Option<u64> {
        let (edge, above) = self.existing(parent, child)?;
        self.merge_into(edge, above, sorted, pruned, true)
    }

    /// The same if a sample with this parent was just stored, although a newer one may have another.
    fn merge_as(
        &self,
        parent: impl FrameRef,
        child: impl FrameRef,
        sorted: &[Words],
        pruned: u64,
    ) -> Option<u64> {
        let graph = self.graph();
        let edge = graph.edge_of(child.get(graph)?)?;
        self.merge_into(edge, parent.get(graph)?, sorted, pruned, false)
    }

    fn merge_into(
        &self,
        edge: &Edge,
        above: &Frame,
        sorted: &[Words],
        pruned: u64,
        is_present: bool,
    ) -> Option<u64> {
        let graph = self.graph();
        let child = edge.child();
        let held = edge.history.hold();
        let is_mixed = edge.history.is_mixed();
        let has_parent = std::ptr::eq(graph.frames.at(edge.parent()), above);
        let is_same = edge.child() == child && (has_parent || (is_mixed && !is_present));
        if !is_same || edge.is_static() {
            return None;
        }
        let (number, is_watched) = (graph.frames.at(child).id, graph.observers.is_any());
        let (mut first, mut last) = (i64::MAX, i64::MIN);
        let mut stored = |words: &Words| {
            let stamp = words[0] as i64;
            (first, last) = (first.min(stamp), last.max(stamp));
            if is_watched {
                let mut update = self.report(edge, Some(stamp.into()), &Pose::of_words(words));
                update.parent = above.name.clone();
                graph.observers.publish(number, &update);
            }
        };
        let room = |end| graph.make_room(end);
        let merged = (sorted, above.id);
        let too_old = pruned
            + edge
                .history
                .merge(&held, &graph.pool, edge.bounds(), merged, room, &mut stored);
        edge.count_too_old(too_old);
        let is_due = first <= last && edge.waiters.is_due(last);
        drop(held);
        if is_due {
            edge.waiters.wake(last);
        }
        if is_mixed {
            self.after_mixed(edge);
        }
        Some(too_old)
    }

    /// Stores a sample, creating and changing what it needs.
    #[cold]
    #[inline(never)]
    pub(crate) fn store(
        &self,
        parent: impl FrameRef,
        child: impl FrameRef,
        sample: Sample<'_>,
    ) -> Result<(), UpdateError> {
        let graph = self.graph();
        if let (Some((edge, _)), None) = (self.existing(parent, child), sample.stamp)
            && let Some(fixed) = edge.fixed()
            && fixed.read(&edge.history, Pose::of) == *sample.pose
        {
            // Unchanged: static transforms are often repeated.
            return Ok(());
        }
        let mut change = graph.change();
        let below = child.get(graph);
        let edge = below.and_then(|frame| graph.edge_of(frame));
        self.vet(&change, parent, child, sample)?;
        let (above, below) = self.ends(&mut change, parent, child)?;
        let Some(edge) = edge else {
            let pose = sample.stamp.is_none().then_some(sample.pose);
            let bounds = self.options().limits.bounds();
            let edge = graph.connect(&mut change, (above, below), pose, bounds);
            let held = edge.history.hold();
            self.put(edge, above, sample, &held);
            drop(held);
            drop(change);
            graph.waiters.wake_if_due(NEW_EDGE);
            return Ok(());
        };
        let changed = self.change_edge(&mut change, edge, above, sample);
        drop(change);
        let Some(is_moved) = changed else {
            // There is no memory for samples this old.
            let stamp = sample.stamp.unwrap_or(Stamp::MIN);
            return Err(self.too_old(edge, stamp));
        };
        let stamp = sample.stamp.map_or(i64::MAX, Stamp::nanos);
        if is_moved {
            edge.waiters.wake(i64::MAX);
            graph.waiters.wake_if_due(MOVED);
        } else if edge.waiters.is_due(stamp) {
            edge.waiters.wake(stamp);
        }
        if edge.history.is_mixed() {
            self.after_mixed(edge);
        }
        Ok(())
    }

    /// Inserts a sample into an existing edge. Returns whether more than a sample has changed; `None` if it was
    /// refused.
    fn change_edge(
        &self,
        change: &mut Change<'_>,
        edge: &Edge,
        above: &Frame,
        sample: Sample<'_>,
    ) -> Option<bool> {
        let graph = self.graph();
        let present = graph.frames.at(edge.parent());
        let is_same = std::ptr::eq(present, above);
        let odd = graph.alter(change);
        let held = edge.history.hold();
        let was_mixed = edge.history.is_mixed();
        let was_static = edge.is_static();
        let mut parent = above;
        let fixed = sample.stamp.is_none().then_some(sample.pose);
        edge.set_kind(&held, fixed, &graph.pool);
        if fixed.is_none() && !is_same && !edge.is_open() {
            edge.history.mix(&held, &graph.pool, present.id);
        }
        let is_taken = self.put(edge, above, sample, &held);
        let newest = edge.history.newest_parent(&held, &graph.pool);
        if let Some(newest) = newest.and_then(|number| graph.numbered(number)) {
            parent = newest;
        }
        graph.count_mixed(change, was_mixed, edge.history.is_mixed());
        if !std::ptr::eq(parent, present) {
            graph.move_edge(change, &odd, edge, parent);
        }
        drop(odd);
        is_taken.then_some(!is_same || was_static || sample.stamp.is_none())
    }

    /// Inserts a vetted sample into an edge that is ready for it, and notifies observers. Returns whether it was
    /// accepted.
    fn put(
        &self,
        edge: &Edge,
        above: &Frame,
        sample: Sample<'_>,
        held: &crate::sync::SpinGuard<'_>,
    ) -> bool {
        let graph = self.graph();
        if let Some(stamp) = sample.stamp {
            let words = sample.pose.words(stamp.nanos());
            let room = |end| graph.make_room(end);
            let bounds = edge.bounds();
            let inserted = edge
                .history
                .insert(held, &graph.pool, bounds, (&words, above.id), room);
            if inserted == Inserted::TooOld {
                return false;
            }
        }
        if graph.observers.is_any() {
            let mut update = self.report(edge, sample.stamp, sample.pose);
            update.parent = above.name.clone();
            let number = graph.frames.at(edge.child()).id;
            graph.observers.publish(number, &update);
        }
        true
    }

    /// Follow-up of a sample in an edge with several parents: frames may now be connected at a time at which they
    /// were not, and once all samples have one parent again, lookups can use the fast path.
    #[cold]
    #[inline(never)]
    pub(crate) fn after_mixed(&self, edge: &Edge) {
        let graph = self.graph();
        graph.waiters.wake_if_due(NEW_EDGE);
        if !edge.history.is_settled() {
            return;
        }
        let mut change = graph.change();
        let odd = graph.alter(&change);
        let held = edge.history.hold();
        if edge.history.is_settled() {
            edge.history.settle(&held);
            graph.count_mixed(&mut change, true, false);
        }
        drop(held);
        drop(odd);
    }

    /// Whether a sample may be stored. Nothing is created before this check: a refused update adds no frame.
    fn vet(
        &self,
        change: &Change<'_>,
        parent: impl FrameRef,
        child: impl FrameRef,
        sample: Sample<'_>,
    ) -> Result<(), UpdateError> {
        let graph = self.graph();
        let is_free = self.options().conflicts == Conflicts::LastWins;
        let (above, below) = (parent.get(graph), child.get(graph));
        let edge = below.and_then(|frame| graph.edge_of(frame));
        let new_above = match above {
            Some(_) => None,
            None => Some(
                parent
                    .vet()
                    .map_err(|error| self.bad_name(parent, child, (error, true)))?,
            ),
        };
        let new_below = match below {
            Some(_) => None,
            None => Some(
                child
                    .vet()
                    .map_err(|error| self.bad_name(parent, child, (error, false)))?,
            ),
        };
        let is_self = match (above, below) {
            (Some(above), Some(below)) => above == below,
            (None, None) => new_above == new_below,
            _ => false,
        };
        let name = |of: Option<&Frame>, new: &Option<FrameName>| match (of, new) {
            (Some(frame), _) => frame.name.clone(),
            (None, Some(name)) => name.clone(),
            (None, None) => FrameName::unchecked("?"),
        };
        let names = || (name(above, &new_above), name(below, &new_below));
        if is_self {
            let (parent, child) = names();
            return Err(UpdateError::SelfEdge { parent, child });
        }
        let is_same = |edge: &Edge| above.is_some_and(|f| f == graph.frames.at(edge.parent()));
        let mut becomes_parent = true;
        if let Some(edge) = edge {
            if !edge.is_open() && !is_free {
                if !is_same(edge) && !sample.is_reparent {
                    let (parent, child) = names();
                    return Err(UpdateError::SecondParent {
                        parent,
                        child,
                        present: graph.frames.at(edge.parent()).name.clone(),
                    });
                }
                if edge.is_static() != sample.stamp.is_none() {
                    return Err(UpdateError::KindConflict {
                        parent: graph.frames.at(edge.parent()).name.clone(),
                        child: graph.frames.at(edge.child()).name.clone(),
                        is_static: edge.is_static(),
                    });
                }
            }
            if let (Some(stamp), false) = (sample.stamp, edge.is_static()) {
                let held = edge.history.hold();
                let (bounds, nanos) = (edge.bounds(), stamp.nanos());
                if edge.history.is_too_old(&held, &graph.pool, bounds, nanos) {
                    drop(held);
                    return Err(self.too_old(edge, stamp));
                }
                let newest = edge.range(&graph.pool).map(|(_, newest)| newest);
                becomes_parent = newest.is_none_or(|newest| newest <= nanos);
            }
            becomes_parent &= !is_same(edge);
        }
        if let (Some(above), Some(below), true, false) = (above, below, becomes_parent, is_free)
            && graph.is_above(change, below, above)
        {
            let (parent, child) = names();
            return Err(UpdateError::Cycle { parent, child });
        }
        let more = usize::from(new_above.is_some()) + usize::from(new_below.is_some());
        graph
            .check_room(change, more)
            .map_err(|error| self.bad_name(parent, child, (error, false)))
    }

    /// Both frames, created if they are new.
    fn ends<'a>(
        &'a self,
        change: &mut Change<'_>,
        parent: impl FrameRef,
        child: impl FrameRef,
    ) -> Result<(&'a Frame, &'a Frame), UpdateError> {
        let graph = self.graph();
        let above = parent
            .intern(graph, change)
            .map_err(|error| self.bad_name(parent, child, (error, true)))?;
        let below = child
            .intern(graph, change)
            .map_err(|error| self.bad_name(parent, child, (error, false)))?;
        Ok((above, below))
    }
}

/// Samples of one edge as they are collected, without those that cannot be kept anyway.
struct Gathered {
    words: Vec<Words>,
    bounds: Bounds,
    newest: i64,
    pruned: u64,
    /// The most samples before they are filtered.
    most: usize,
}

/// The number of samples collected before they are first filtered.
const GATHERED_SAMPLES: usize = 4096;

impl Gathered {
    fn new(bounds: Bounds, newest: Option<i64>) -> Self {
        Gathered {
            words: Vec::new(),
            bounds,
            newest: newest.unwrap_or(i64::MIN),
            pruned: 0,
            most: GATHERED_SAMPLES,
        }
    }

    fn add(&mut self, words: Words) {
        self.newest = self.newest.max(words[0] as i64);
        self.words.push(words);
        if self.words.len() == self.most {
            self.prune();
            self.most = (self.words.len() * 2).max(GATHERED_SAMPLES);
        }
    }

    fn prune(&mut self) {
        let before = self.words.len();
        let horizon = self.newest.saturating_sub(self.bounds.window);
        self.words.retain(|words| words[0] as i64 >= horizon);
        let count = usize::try_from(self.bounds.count).unwrap_or(usize::MAX);
        if self.words.len() > count {
            self.words = sorted_once(std::mem::take(&mut self.words));
            let excess = self.words.len().saturating_sub(count);
            self.words.drain(..excess);
        }
        self.pruned += (before - self.words.len()) as u64;
        self.words
            .shrink_to(self.words.len() * 2 + GATHERED_SAMPLES);
    }

    /// The remaining samples by increasing stamp, and how many were left out.
    fn sorted(self) -> (Vec<Words>, u64) {
        (sorted_once(self.words), self.pruned)
    }
}

/// The samples by increasing stamp; of equal ones only the last given.
fn sorted_once(words: Vec<Words>) -> Vec<Words> {
    if words
        .windows(2)
        .all(|pair| (pair[0][0] as i64) < pair[1][0] as i64)
    {
        return words;
    }
    // Sorting keys and gathering once moves each sample once instead of a dozen times.
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
