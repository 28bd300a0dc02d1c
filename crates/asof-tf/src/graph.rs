//! Frames, the edges between them, and how they are found.

// The compiler would keep these apart from their callers; together, a pose stays in registers.
#![allow(clippy::inline_always)]

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard};

use crate::error::{LookupError, UpdateError};
use crate::history::{Bounds, Fixed, History, Place, View};
use crate::name::{FrameName, hash, same, strip};
use crate::observe::Observers;
use crate::pool::Pool;
use crate::pose::{Climbed, Pose, part};
use crate::shelf::{Link, Shelf, Spot, Table};
use crate::sync::{locked, pause};
use crate::wait::Waiters;

/// Links to frames that stand in the graph itself.
const QUICK: usize = 256;

/// Optimistic walks through a tree that is being changed, before a reader waits for the change.
const WALKS: u32 = 64;

/// A coordinate frame.
#[repr(C, align(64))]
pub struct Frame {
    /// To the parent that it has now.
    pub(crate) edge: Link<Edge>,
    /// Edges up to the root.
    pub(crate) depth: AtomicU32,
    pub(crate) id: u32,
    hash: u64,
    pub(crate) name: FrameName,
    // Only for those who hold the lock on changes:
    first_child: Link<Frame>,
    next_sibling: Link<Frame>,
}

/// From a child to its parent: the pose of the child in the parent, over time.
#[repr(C)]
pub struct Edge {
    pub(crate) parent: Spot<Frame>,
    pub(crate) child: Spot<Frame>,
    /// The pose, if it is the same for all times. An edge never changes its kind.
    pub(crate) fixed: Option<Fixed>,
    pub(crate) history: History,
    window: AtomicI64,
    count: AtomicU64,
    /// The edge that the child had before it was reparented: its samples stay valid for their times.
    pub(crate) previous: Option<Spot<Edge>>,
    pub(crate) too_old: AtomicU64,
    pub(crate) waiters: Waiters,
}

/// A buffer's frames and edges.
pub struct Graph {
    pub(crate) id: u32,
    pub(crate) frames: Shelf<Frame>,
    pub(crate) edges: Shelf<Edge>,
    pub(crate) pool: Pool,
    tables: Shelf<Table<Frame>>,
    /// The first frame of each low byte of the hash: most names are found here, with one load less.
    quick: [Link<Frame>; QUICK],
    /// By hash of the name, probed linearly, at most half full.
    names: Link<Table<Frame>>,
    /// By number.
    numbers: Link<Table<Frame>>,
    /// Even; odd while edges are being changed. Also counts changes of static poses.
    epoch: AtomicU64,
    /// Whether any frame was ever reparented.
    has_eras: AtomicBool,
    change: Mutex<u32>,
    max_frames: usize,
    pub(crate) waiters: Waiters,
    pub(crate) observers: Observers,
}

/// The right to change the tree; holds the number of frames.
pub type Change<'a> = MutexGuard<'a, u32>;

/// Why an edge has no pose for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Miss {
    Empty,
    Outside { oldest: i64, newest: i64 },
}

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

/// What to do for times outside of what an edge has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Extrapolation {
    /// It is an error.
    #[default]
    Refuse,
    /// Up to so many nanoseconds outside, the nearest sample counts.
    Hold(u64),
    /// Up to so many nanoseconds outside, the two nearest samples are continued at their velocity;
    /// a single sample is held.
    ConstantVelocity(u64),
}

impl Extrapolation {
    #[inline]
    fn reach(self) -> u64 {
        match self {
            Extrapolation::Refuse => 0,
            Extrapolation::Hold(nanos) | Extrapolation::ConstantVelocity(nanos) => nanos,
        }
    }
}

impl Edge {
    pub(crate) fn is_static(&self) -> bool {
        self.fixed.is_some()
    }

    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            window: self.window.load(Ordering::Relaxed),
            count: self.count.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn set_bounds(&self, bounds: Bounds) {
        self.window.store(bounds.window, Ordering::Relaxed);
        self.count.store(bounds.count, Ordering::Relaxed);
    }

    /// The pose at `t`.
    #[inline]
    pub(crate) fn at(&self, pool: &Pool, t: i64) -> Result<Pose, Miss> {
        if let Some(fixed) = &self.fixed {
            return Ok(fixed.read(&self.history, Pose::of));
        }
        let found = self.history.read(pool, |view| {
            let (place, lowest) = view.place(t)?;
            let pose = match place {
                Place::At(slot) => Ok(Pose::of(slot)),
                Place::Between(a, b) => {
                    Ok(Pose::of(a).between(&Pose::of(b), part(a.stamp(), b.stamp(), t)))
                }
                Place::Empty => Err(Miss::Empty),
                Place::Before(..) | Place::After(..) => return miss(view),
            };
            Some((pose, lowest))
        });
        found.unwrap_or(Err(Miss::Empty))
    }

    /// The pose at `t`, if nothing is in the way: no second try, no reason.
    #[inline(always)]
    pub(crate) fn at_once(&self, pool: &Pool, t: i64) -> Option<Pose> {
        if let Some(fixed) = &self.fixed {
            let (slot, seq) = fixed.glance();
            let pose = Pose::of(slot);
            return fixed.is_whole(seq).then_some(pose);
        }
        let view = self.history.glance(pool)?;
        let (place, lowest) = view.place(t)?;
        let pose = match place {
            Place::At(slot) => Pose::of(slot),
            Place::Between(a, b) => {
                Pose::of(a).between(&Pose::of(b), part(a.stamp(), b.stamp(), t))
            }
            _ => return None,
        };
        self.history.is_whole(&view, lowest).then_some(pose)
    }

    /// The newest pose and its stamp, if nothing is in the way. A static edge has no stamp.
    #[inline(always)]
    pub(crate) fn newest_once(&self, pool: &Pool) -> Option<(Pose, Option<i64>)> {
        if let Some(fixed) = &self.fixed {
            let (slot, seq) = fixed.glance();
            let pose = Pose::of(slot);
            return fixed.is_whole(seq).then_some((pose, None));
        }
        let view = self.history.glance(pool)?;
        if view.len() == 0 {
            return None;
        }
        let (slot, index) = view.newest()?;
        let (pose, stamp) = (Pose::of(slot), slot.stamp());
        self.history
            .is_whole(&view, index)
            .then_some((pose, Some(stamp)))
    }

    /// The pose at `t`, or near what there is.
    pub(crate) fn at_or_near(
        &self,
        pool: &Pool,
        t: i64,
        policy: Extrapolation,
    ) -> Result<Pose, Miss> {
        if policy == Extrapolation::Refuse || self.is_static() {
            return self.at(pool, t);
        }
        let is_moving = matches!(policy, Extrapolation::ConstantVelocity(_));
        let found = self.history.read(pool, |view| {
            let (place, lowest) = view.place(t)?;
            let pose = match place {
                Place::Before(end, next) | Place::After(end, next) => {
                    if t.abs_diff(end.stamp()) > policy.reach() {
                        return miss(view);
                    }
                    match next.filter(|_| is_moving) {
                        Some(next) => {
                            let (a, b) = (next.stamp(), end.stamp());
                            let part = (t as f64 - a as f64) / (b as f64 - a as f64);
                            let exact =
                                1.0 + (t.wrapping_sub(b) as f64) / (b.wrapping_sub(a) as f64);
                            let part = if exact.is_finite() { exact } else { part };
                            Pose::of(next).beyond(&Pose::of(end), part)
                        }
                        None => Pose::of(end),
                    }
                }
                Place::At(slot) => Pose::of(slot),
                Place::Between(a, b) => {
                    Pose::of(a).between(&Pose::of(b), part(a.stamp(), b.stamp(), t))
                }
                Place::Empty => return Some((Err(Miss::Empty), lowest)),
            };
            Some((Ok(pose), lowest))
        });
        found.unwrap_or(Err(Miss::Empty))
    }

    /// The newest pose, with its stamp if the edge is dynamic.
    #[inline]
    pub(crate) fn newest(&self, pool: &Pool) -> Result<(Pose, Option<i64>), Miss> {
        if let Some(fixed) = &self.fixed {
            return Ok((fixed.read(&self.history, Pose::of), None));
        }
        let found = self.history.read(pool, |view| {
            if view.len() == 0 {
                return Some((Err(Miss::Empty), view.tail()));
            }
            let (slot, index) = view.newest()?;
            Some((Ok((Pose::of(slot), Some(slot.stamp()))), index))
        });
        found.unwrap_or(Err(Miss::Empty))
    }

    /// The oldest and the newest stamp; `None` for a static edge, or one without samples.
    pub(crate) fn range(&self, pool: &Pool) -> Option<(i64, i64)> {
        let found = self.history.read(pool, |view| miss(view));
        match found? {
            Err(Miss::Outside { oldest, newest }) => Some((oldest, newest)),
            _ => None,
        }
    }
}

/// What a history has, as the reason why it has not what was asked for.
fn miss(view: &View<'_>) -> Option<(Result<Pose, Miss>, u64)> {
    if view.len() == 0 {
        return Some((Err(Miss::Empty), view.tail()));
    }
    let oldest = view.slot(view.tail())?.stamp();
    let newest = view.newest()?.0.stamp();
    Some((Err(Miss::Outside { oldest, newest }), view.tail()))
}

impl Graph {
    pub(crate) fn new(id: u32, budget: u64, max_frames: usize) -> Self {
        Graph {
            id,
            frames: Shelf::new(),
            edges: Shelf::new(),
            pool: Pool::new(budget),
            tables: Shelf::new(),
            quick: std::array::from_fn(|_| Link::empty()),
            names: Link::empty(),
            numbers: Link::empty(),
            epoch: AtomicU64::new(0),
            has_eras: AtomicBool::new(false),
            change: Mutex::new(0),
            max_frames: max_frames.min(u32::MAX as usize),
            waiters: Waiters::default(),
            observers: Observers::default(),
        }
    }

    /// The frame with this name; one leading slash is passed over.
    #[inline]
    pub(crate) fn find(&self, name: &str) -> Option<&Frame> {
        let bytes = strip(name).as_bytes();
        self.find_hashed(bytes, hash(bytes))
    }

    #[inline]
    fn find_hashed(&self, bytes: &[u8], hash: u64) -> Option<&Frame> {
        if let Some(spot) = self.quick[hash as usize % QUICK].load(Ordering::Acquire) {
            let frame = self.frames.at(spot);
            if frame.hash == hash && same(frame.name.bytes(), bytes) {
                return Some(frame);
            }
        }
        self.find_in_table(bytes, hash)
    }

    #[inline(never)]
    fn find_in_table(&self, bytes: &[u8], hash: u64) -> Option<&Frame> {
        let table = self.tables.at(self.names.load(Ordering::Acquire)?);
        let mut at = hash;
        loop {
            let frame = self.frames.at(table.link(at).load(Ordering::Acquire)?);
            if frame.hash == hash && same(frame.name.bytes(), bytes) {
                return Some(frame);
            }
            at = at.wrapping_add(1);
        }
    }

    /// The frame with this number.
    #[inline]
    pub(crate) fn numbered(&self, number: u32) -> Option<&Frame> {
        let table = self.tables.at(self.numbers.load(Ordering::Acquire)?);
        if number as usize >= table.len() {
            return None;
        }
        let spot = table.link(number.into()).load(Ordering::Acquire)?;
        Some(self.frames.at(spot))
    }

    /// All frames, in the order in which they were first named.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Frame> {
        (0..).map_while(|number| self.numbered(number))
    }

    #[inline(always)]
    pub(crate) fn edge_of(&self, frame: &Frame) -> Option<&Edge> {
        Some(self.edges.at(frame.edge.load(Ordering::Acquire)?))
    }

    /// Changes with every change of the tree or of a static pose; odd in the middle of one.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn has_eras(&self) -> bool {
        self.has_eras.load(Ordering::Relaxed)
    }

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
            let parent = self.frames.at(edge.parent);
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
            low = self.frames.at(edge.parent);
            depth_low -= 1;
        }
        while depth_high > depth_low {
            let edge = self.edge_of(high)?;
            let pose = read.edge_apart(edge)?;
            match &mut up {
                Some(up) => up.add(&pose),
                None => up = Some(Climbed::new(&pose)),
            }
            high = self.frames.at(edge.parent);
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
            (low, high) = (self.frames.at(right.parent), self.frames.at(left.parent));
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
        (edge.parent == Spot::of(target)).then_some(edge)
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
                at = self.frames.at(edge.parent);
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
        let parent = self.frames.at(edge.parent).name.clone();
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
                Some(edge) => at = self.frames.at(edge.parent),
                None => break,
            }
        }
        at
    }

    pub(crate) fn change(&self) -> Change<'_> {
        locked(&self.change)
    }

    /// Makes every path that was resolved before resolve itself again.
    pub(crate) fn bump(&self, _change: &Change<'_>) {
        self.epoch.fetch_add(2, Ordering::Release);
    }

    /// The frame with this name, made if there is none.
    pub(crate) fn intern<'a>(
        &'a self,
        change: &mut Change<'_>,
        name: &str,
    ) -> Result<&'a Frame, NameError> {
        let bytes = strip(name).as_bytes();
        let hash = hash(bytes);
        if let Some(frame) = self.find_hashed(bytes, hash) {
            return Ok(frame);
        }
        let name = FrameName::new(name).map_err(NameError::Bad)?;
        if **change as usize >= self.max_frames {
            return Err(NameError::TooMany(self.max_frames));
        }
        let spot = self.frames.put(Frame {
            edge: Link::empty(),
            depth: AtomicU32::new(0),
            id: **change,
            hash,
            name,
            first_child: Link::empty(),
            next_sibling: Link::empty(),
        });
        self.enlist(**change, spot);
        self.enter_quick(spot);
        **change += 1;
        Ok(self.frames.at(spot))
    }

    /// Enters a new frame into both tables, larger ones if need be.
    fn enlist(&self, number: u32, spot: Spot<Frame>) {
        let count = number as usize + 1;
        let numbers = self
            .numbers
            .load(Ordering::Relaxed)
            .map(|t| self.tables.at(t));
        if let Some(numbers) = numbers.filter(|table| table.len() >= count) {
            numbers.link(number.into()).store(spot, Ordering::Release);
        } else {
            let larger = self.tables.put(Table::new((count * 2).max(8)));
            let table = self.tables.at(larger);
            for frame in self.all() {
                table
                    .link(frame.id.into())
                    .store(Spot::of(frame), Ordering::Relaxed);
            }
            table.link(number.into()).store(spot, Ordering::Relaxed);
            self.numbers.store(larger, Ordering::Release);
        }
        let names = self
            .names
            .load(Ordering::Relaxed)
            .map(|t| self.tables.at(t));
        if let Some(names) = names.filter(|table| table.len() >= count * 2) {
            self.enter(names, spot);
        } else {
            let larger = self.tables.put(Table::new((count * 4).max(16)));
            for frame in self.all() {
                self.enter(self.tables.at(larger), Spot::of(frame));
            }
            self.names.store(larger, Ordering::Release);
        }
    }

    fn enter_quick(&self, spot: Spot<Frame>) {
        let link = &self.quick[self.frames.at(spot).hash as usize % QUICK];
        if link.load(Ordering::Relaxed).is_none() {
            link.store(spot, Ordering::Release);
        }
    }

    fn enter(&self, table: &Table<Frame>, spot: Spot<Frame>) {
        let mut at = self.frames.at(spot).hash;
        while table.link(at).load(Ordering::Relaxed).is_some() {
            at = at.wrapping_add(1);
        }
        table.link(at).store(spot, Ordering::Release);
    }

    /// Puts a new edge under `parent`, in place of the one that `child` may have.
    ///
    /// A child that has no children itself cannot close a circle, so nothing is searched then.
    pub(crate) fn connect<'a>(
        &'a self,
        change: &Change<'_>,
        parent: &'a Frame,
        child: &'a Frame,
        pose: Option<&Pose>,
        bounds: Bounds,
    ) -> Result<&'a Edge, UpdateError> {
        let names = || (parent.name.clone(), child.name.clone());
        if std::ptr::eq(parent, child) {
            let (parent, child) = names();
            return Err(UpdateError::SelfEdge { parent, child });
        }
        if child.first_child.load(Ordering::Relaxed).is_some() && self.is_above(child, parent) {
            let (parent, child) = names();
            return Err(UpdateError::Cycle { parent, child });
        }
        let previous = child.edge.load(Ordering::Relaxed);
        let _ = change;
        let edge = self.edges.put(Edge {
            parent: Spot::of(parent),
            child: Spot::of(child),
            fixed: pose.map(|pose| Fixed::new(&pose.words(0))),
            history: History::new(),
            window: AtomicI64::new(bounds.window),
            count: AtomicU64::new(bounds.count),
            previous,
            too_old: AtomicU64::new(0),
            waiters: Waiters::default(),
        });
        self.epoch.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        if let Some(previous) = previous {
            self.has_eras.store(true, Ordering::Relaxed);
            self.unlink(self.frames.at(self.edges.at(previous).parent), child);
        }
        match parent.first_child.load(Ordering::Relaxed) {
            Some(sibling) => child.next_sibling.store(sibling, Ordering::Relaxed),
            None => child.next_sibling.clear(),
        }
        parent.first_child.store(Spot::of(child), Ordering::Relaxed);
        child.edge.store(edge, Ordering::Release);
        self.sink(child, parent.depth.load(Ordering::Relaxed) + 1);
        self.epoch.fetch_add(1, Ordering::Release);
        Ok(self.edges.at(edge))
    }

    /// Whether `upper` is `lower` or above it.
    fn is_above(&self, upper: &Frame, lower: &Frame) -> bool {
        let mut at = lower;
        loop {
            if std::ptr::eq(at, upper) {
                return true;
            }
            match self.edge_of(at) {
                Some(edge) => at = self.frames.at(edge.parent),
                None => return false,
            }
        }
    }

    fn unlink(&self, parent: &Frame, child: &Frame) {
        let mut link = &parent.first_child;
        while let Some(spot) = link.load(Ordering::Relaxed) {
            let frame = self.frames.at(spot);
            if std::ptr::eq(frame, child) {
                match frame.next_sibling.load(Ordering::Relaxed) {
                    Some(next) => link.store(next, Ordering::Relaxed),
                    None => link.clear(),
                }
                return;
            }
            link = &frame.next_sibling;
        }
    }

    /// Sets the depth of a frame and of all that is below it.
    fn sink(&self, top: &Frame, depth: u32) {
        top.depth.store(depth, Ordering::Relaxed);
        let mut open = match top.first_child.load(Ordering::Relaxed) {
            Some(spot) => vec![(self.frames.at(spot), depth + 1)],
            None => return,
        };
        while let Some((frame, depth)) = open.pop() {
            frame.depth.store(depth, Ordering::Relaxed);
            let below = frame.first_child.load(Ordering::Relaxed);
            open.extend(below.map(|spot| (self.frames.at(spot), depth + 1)));
            let beside = frame.next_sibling.load(Ordering::Relaxed);
            open.extend(beside.map(|spot| (self.frames.at(spot), depth)));
        }
    }
}

/// Why a name gives no frame.
pub enum NameError {
    Bad(&'static str),
    TooMany(usize),
    Foreign,
}
