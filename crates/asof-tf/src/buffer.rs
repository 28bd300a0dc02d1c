//! The buffer and its updates.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use asof_core::Stamp;
use nalgebra::Isometry3;

use crate::error::{LookupError, UpdateError};
use crate::frame_ref::sealed::Resolve;
use crate::frame_ref::{FrameId, FrameRef};
use crate::graph::{Change, Edge, Frame, Graph, NameError};
use crate::history::Inserted;
use crate::name::strip;
use crate::observe::{Observer, Update};
use crate::options::{BufferOptions, BufferStats, Limits};
use crate::pose::{BadPose, Pose};
use crate::shelf::Spot;
use crate::store::Sample;
use crate::wait::MOVED;

/// A transform buffer: frames, the edges between them, and the history of each edge.
///
/// A handle: clones share the same frames. `Send + Sync`; every method takes `&self`. Lookups take no lock that a
/// writer holds; writers of different edges do not wait for each other.
#[derive(Clone)]
pub struct TransformBuffer {
    graph: Arc<Graph>,
    options: BufferOptions,
}

impl Default for TransformBuffer {
    fn default() -> Self {
        TransformBuffer::new()
    }
}

impl TransformBuffer {
    /// An empty buffer with the [default options](BufferOptions::default).
    pub fn new() -> Self {
        TransformBuffer::with_options(BufferOptions::default())
    }

    /// An empty buffer.
    ///
    /// ```
    /// # use asof_tf::TransformBuffer;
    /// # use nalgebra::Isometry3;
    /// use std::time::Duration;
    /// use asof_tf::BufferOptions;
    ///
    /// // Two seconds of every edge, and at most a megabyte of samples.
    /// let options = BufferOptions::default().window(Duration::from_secs(2)).bytes(1 << 20);
    /// let buffer = TransformBuffer::with_options(options);
    /// buffer.update_static("base_link", "lidar", Isometry3::identity())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_options(options: BufferOptions) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let bytes = options.bytes.unwrap_or(u64::MAX);
        TransformBuffer {
            graph: Arc::new(Graph::new(id, bytes, options.max_frames)),
            options,
        }
    }

    /// The options of this handle.
    pub fn options(&self) -> BufferOptions {
        self.options
    }

    /// Stores the pose of `child` in `parent` at `stamp`: it transforms points from `child` to `parent`.
    ///
    /// The first update creates the edge, and any new frame. Zero is a time like any other. Stamps may come in any
    /// order: a late sample is sorted in, and one with an existing stamp replaces it (tf2 in ROS 1 kept the first; the
    /// last is what the sender meant).
    ///
    /// ```
    /// # use asof_core::Stamp;
    /// # use asof_tf::TransformBuffer;
    /// # use nalgebra::Isometry3;
    /// # let at = |seconds: i64| Stamp::from_nanos(seconds * 1_000_000_000);
    /// let buffer = TransformBuffer::new();
    /// buffer.update("odom", "base_link", at(0), Isometry3::identity())?;
    /// buffer.update("odom", "base_link", at(1), Isometry3::translation(1.0, 0.0, 0.0))?;
    /// assert!(buffer.update("map", "base_link", at(1), Isometry3::identity()).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`UpdateError`] says what is wrong; then nothing is changed. Unless
    /// [`Conflicts::LastWins`](crate::Conflicts::LastWins) is set, a second parent is refused here: see
    /// [`reparent`](TransformBuffer::reparent). So is a dynamic update of a static edge (ROS 2's tf2 drops its history,
    /// ROS 1's tf2 ignored the update; either hides a mistake).
    #[inline]
    pub fn update(
        &self,
        parent: impl FrameRef,
        child: impl FrameRef,
        stamp: Stamp,
        isometry: Isometry3<f64>,
    ) -> Result<(), UpdateError> {
        self.store_at((parent, child), stamp, &isometry, |sample| sample)
    }

    /// Stores the pose of `child` in `parent` for all times.
    ///
    /// An edge without samples, because none came yet or it was [cleared](TransformBuffer::clear), becomes static.
    ///
    /// ```
    /// # use asof_core::Stamp;
    /// # use asof_tf::TransformBuffer;
    /// # use nalgebra::Isometry3;
    /// # let at = |seconds: i64| Stamp::from_nanos(seconds * 1_000_000_000);
    /// let buffer = TransformBuffer::new();
    /// buffer.update_static("base_link", "lidar", Isometry3::translation(0.2, 0.0, 0.3))?;
    /// assert!(buffer.lookup("base_link", "lidar", at(7)).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
        self.store(parent, child, Sample::fixed(&pose))
    }

    /// Moves `child` to another parent, from `stamp` on.
    ///
    /// As in tf2, the parent is kept with each sample. A lookup goes through the parent of the last sample at
    /// or before its time, so the samples under the old parent stay valid for their times, and a late one with the old
    /// parent is sorted in. Between two samples of different parents nothing is interpolated: the older one is used.
    /// Samples under the old parent are dropped by the same limits as all others. If `child` already has `parent`, this
    /// is an [`update`](TransformBuffer::update).
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
    /// buffer.update_static("odom", "dock", Isometry3::identity())?;
    /// buffer.reparent("dock", "base_link", at(3), Isometry3::identity())?;
    /// assert_eq!(buffer.parent("base_link")?.unwrap().as_str(), "dock");
    /// assert_eq!(buffer.parent_at("base_link", at(1))?.unwrap().as_str(), "odom");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
        self.store_at((parent, child), stamp, &isometry, |sample| {
            sample.reparenting()
        })
    }

    /// Stores a pose at a time; `how` makes the sample if it is more than another one of its edge.
    #[inline]
    fn store_at<P: FrameRef, C: FrameRef>(
        &self,
        (parent, child): (P, C),
        stamp: Stamp,
        isometry: &Isometry3<f64>,
        how: impl for<'a> FnOnce(Sample<'a>) -> Sample<'a>,
    ) -> Result<(), UpdateError> {
        let pose = Pose::checked(isometry).map_err(|bad| self.bad_pose(parent, child, bad))?;
        if let Some((edge, above)) = self.existing(parent, child)
            && let Some(stored) = self.insert(edge, above, stamp, &pose)
        {
            return stored;
        }
        self.store(parent, child, how(Sample::at(stamp, &pose)))
    }

    /// Moves `child`, whose edge is static, to another parent, for all times.
    ///
    /// # Errors
    /// As for [`update`](TransformBuffer::update), but for the second parent.
    pub fn reparent_static(
        &self,
        parent: impl FrameRef,
        child: impl FrameRef,
        isometry: Isometry3<f64>,
    ) -> Result<(), UpdateError> {
        let pose = Pose::checked(&isometry).map_err(|bad| self.bad_pose(parent, child, bad))?;
        self.store(parent, child, Sample::fixed(&pose).reparenting())
    }

    /// Sets the limits of one edge; they apply from its next update on.
    ///
    /// # Errors
    /// If `child` is unknown, or has no parent.
    pub fn set_limits(&self, child: impl FrameRef, limits: Limits) -> Result<(), LookupError> {
        let frame = child.find(&self.graph)?;
        let edge = self.graph.edge_of(frame).ok_or(LookupError::UnknownFrame {
            frame: frame.name.clone(),
        })?;
        edge.set_bounds(limits.bounds());
        Ok(())
    }

    /// Drops all samples; frames, static edges and the shape of the tree stay. For a clock that jumped back, or a
    /// recording that starts over. An edge without samples accepts any parent, and may become static.
    pub fn clear(&self) {
        let graph = &*self.graph;
        let mut change = graph.change();
        let odd = graph.alter(&change);
        for edge in graph.all().filter_map(|frame| graph.edge_of(frame)) {
            if !edge.is_static() {
                let held = edge.history.hold();
                graph.count_mixed(&mut change, edge.history.is_mixed(), false);
                edge.history.clear(&held, &graph.pool);
            }
        }
        drop(odd);
        drop(change);
        graph.waiters.wake(MOVED);
    }

    /// Removes a frame and all frames below it, with their samples. Returns how many.
    ///
    /// Its memory is reused for other frames, except for its name (some hundred bytes), which is kept in case it comes
    /// back: [`BufferStats::removed`] counts those.
    ///
    /// # Errors
    /// If the frame is unknown.
    pub fn remove(&self, frame: impl FrameRef) -> Result<usize, LookupError> {
        let graph = &*self.graph;
        let change = graph.change();
        let top = frame.find(graph)?;
        let is_below = |frame: &Frame| {
            let mut found = std::ptr::eq(frame, top);
            graph.climb_now(frame, |above| {
                found |= std::ptr::eq(above, top);
                !found
            });
            found
        };
        let gone: Vec<&Frame> = if top.has_children() {
            graph.all().filter(|frame| is_below(frame)).collect()
        } else {
            vec![top]
        };
        self.remove_all(change, &gone);
        Ok(gone.len())
    }

    /// Removes the frames that have not moved since `before`: those below an edge whose newest sample is older, unless
    /// something below them is newer. Frames with only static edges stay. Returns how many were removed.
    ///
    /// For robots that name frames after what they see: call it now and then to stay within
    /// [`BufferOptions::max_frames`].
    pub fn remove_older(&self, before: Stamp) -> usize {
        let graph = &*self.graph;
        let change = graph.change();
        let newest = |frame: &Frame| {
            let edge = graph.edge_of(frame).filter(|edge| !edge.is_static())?;
            let range = edge.range(&graph.pool);
            Some(range.map_or(i64::MIN, |(_, newest)| newest) >= before.nanos())
        };
        let mut fresh: HashSet<u32> = HashSet::new();
        for frame in graph.all().filter(|frame| newest(frame) == Some(true)) {
            fresh.insert(frame.id);
            graph.climb_now(frame, |above| fresh.insert(above.id));
        }
        let is_old = |frame: &Frame| !fresh.contains(&frame.id) && newest(frame) == Some(false);
        // The result for a frame applies to those below it.
        let mut known: HashMap<u32, bool> = HashMap::new();
        let mut gone = Vec::new();
        for frame in graph.all().filter(|frame| !fresh.contains(&frame.id)) {
            let (mut way, mut found) = (vec![frame.id], is_old(frame));
            if !found {
                graph.climb_now(frame, |above| {
                    found = known.get(&above.id).copied().unwrap_or(is_old(above));
                    way.push(above.id);
                    !found && !known.contains_key(&above.id)
                });
            }
            if way.len() > 1 {
                known.insert(frame.id, found);
            }
            if found {
                gone.push(frame);
            }
        }
        self.remove_all(change, &gone);
        gone.len()
    }

    /// Drops what an edge has, so that it can become static or dynamic.
    #[cfg(feature = "urdf")]
    pub(crate) fn open_edge(&self, child: &str) {
        let graph = &*self.graph;
        let mut change = graph.change();
        let Some(edge) = graph.find(child).and_then(|frame| graph.edge_of(frame)) else {
            return;
        };
        let odd = graph.alter(&change);
        let held = edge.history.hold();
        graph.count_mixed(&mut change, edge.history.is_mixed(), false);
        edge.history.retire(&held, &graph.pool);
        edge.history.use_again(&held);
        drop(held);
        drop(odd);
    }

    fn remove_all(&self, mut change: Change<'_>, gone: &[&Frame]) {
        let graph = &*self.graph;
        let mut waiters = Vec::new();
        for frame in gone {
            waiters.extend(graph.edge_of(frame).map(|edge| &edge.waiters));
            graph.remove(&mut change, frame);
        }
        drop(change);
        for waiters in waiters {
            waiters.wake(i64::MAX);
        }
        graph.waiters.wake(MOVED);
    }

    /// The id of a frame, created if there is none yet.
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
    /// // Ids save the search for the name in many lookups.
    /// let (odom, lidar) = (buffer.frame("odom")?, buffer.frame("lidar")?);
    /// assert_eq!(buffer.lookup(odom, lidar, at(1))?.translation.x, 1.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the name is invalid, or there are too many frames.
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

    /// Observes the buffer: the latest transform of every edge now, then every update. At most `capacity` updates wait;
    /// the oldest are lost first, and counted.
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
    /// let mut updates = buffer.observe(100);
    /// assert_eq!(updates.drain().len(), 2, "the latest of every edge");
    /// buffer.update("odom", "base_link", at(3), Isometry3::identity())?;
    /// assert_eq!(updates.try_next().unwrap().stamp, Some(at(3)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn observe(&self, capacity: usize) -> Observer {
        // No edge is added or removed meanwhile; each is read under its latch, so an update is either among the first
        // transforms or comes after them, never both and never neither.
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
    pub fn stats(&self) -> BufferStats {
        let mut stats = BufferStats {
            bytes: self.graph.pool.bytes(),
            ..BufferStats::default()
        };
        for frame in self.graph.all() {
            stats.frames += 1;
            let Some(edge) = self.graph.edge_of(frame) else {
                continue;
            };
            stats.edges += 1;
            stats.samples += edge.history.len();
            stats.evicted += edge.history.evicted();
            stats.too_old += edge.too_old();
        }
        stats.removed = self.graph.all_made().count() - stats.frames;
        stats
    }

    /// The newest stamp of an existing dynamic edge with this parent.
    pub(crate) fn newest_of(&self, parent: &str, child: &str) -> Option<Stamp> {
        let (edge, _) = self.existing(parent, child)?;
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

    /// The edge and its parent, if it exists with this parent.
    #[inline]
    pub(crate) fn existing(
        &self,
        parent: impl FrameRef,
        child: impl FrameRef,
    ) -> Option<(&Edge, &Frame)> {
        // The child first: if it is new, the parent need not be looked up.
        let edge = self.graph.edge_of(child.get(&self.graph)?)?;
        let above = parent.get(&self.graph)?;
        (edge.parent() == Spot::of(above)).then_some((edge, above))
    }

    /// Inserts a sample into an edge that was found to have this parent; `None` if it no longer does.
    #[inline]
    fn insert(
        &self,
        edge: &Edge,
        above: &Frame,
        stamp: Stamp,
        pose: &Pose,
    ) -> Option<Result<(), UpdateError>> {
        let words = pose.words(stamp.nanos());
        let child = edge.child();
        let held = edge.history.hold();
        let is_same = edge.parent() == Spot::of(above) && edge.child() == child;
        if !is_same || edge.is_static() {
            return None;
        }
        let inserted = edge.history.insert(
            &held,
            &self.graph.pool,
            edge.bounds(),
            (&words, above.id),
            |end| self.graph.make_room(end),
        );
        if inserted == Inserted::TooOld {
            return Some(Err(self.too_old(edge, stamp)));
        }
        let is_due = edge.waiters.is_due(stamp.nanos());
        if self.graph.observers.is_any() {
            let number = self.graph.frames.at(child).id;
            let update = self.report(edge, Some(stamp), pose);
            self.graph.observers.publish(number, &update);
        }
        let is_mixed = edge.history.is_mixed();
        drop(held);
        if is_due {
            edge.waiters.wake(stamp.nanos());
        }
        if is_mixed {
            self.after_mixed(edge);
        }
        Some(Ok(()))
    }

    pub(crate) fn report(&self, edge: &Edge, stamp: Option<Stamp>, pose: &Pose) -> Update {
        Update {
            parent: self.graph.frames.at(edge.parent()).name.clone(),
            child: self.graph.frames.at(edge.child()).name.clone(),
            stamp,
            isometry: pose.isometry(),
        }
    }

    #[cold]
    pub(crate) fn too_old(&self, edge: &Edge, stamp: Stamp) -> UpdateError {
        edge.count_too_old(1);
        let newest = edge
            .range(&self.graph.pool)
            .map_or(stamp, |(_, n)| n.into());
        UpdateError::TooOld {
            parent: self.graph.frames.at(edge.parent()).name.clone(),
            child: self.graph.frames.at(edge.child()).name.clone(),
            stamp,
            newest,
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
    pub(crate) fn bad_name(
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
