//! Creating and changing frames and edges.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::{Change, Edge, Frame, Graph, QUICK, REMOVED};
use crate::history::Bounds;
use crate::name::{FrameName, Key};
use crate::pose::Pose;
use crate::shelf::{Link, Spot, Table};

/// Why a name has no frame.
#[non_exhaustive]
pub enum NameError {
    Bad(&'static str),
    TooMany(usize),
    Foreign,
}

impl Graph {
    /// The frame with this name, created if there is none.
    pub(crate) fn intern<'a>(
        &'a self,
        change: &mut Change<'_>,
        name: &str,
    ) -> Result<&'a Frame, NameError> {
        if let Some(frame) = self.find(name) {
            return Ok(frame);
        }
        let name = FrameName::new(name).map_err(NameError::Bad)?;
        self.make(change, name)
    }

    /// A new frame, whose name is not in use; a removed frame is restored.
    pub(crate) fn make<'a>(
        &'a self,
        change: &mut Change<'_>,
        name: FrameName,
    ) -> Result<&'a Frame, NameError> {
        self.check_room(change, 1)?;
        let key = Key::of(name.bytes());
        if let Some(frame) = self.find_keyed(name.bytes(), key) {
            frame.depth.store(0, Ordering::Relaxed);
            change.there += 1;
            return Ok(frame);
        }
        if change.made == u32::MAX - 1 {
            return Err(NameError::TooMany(change.made as usize));
        }
        let spot = self.frames.put(Frame {
            edge: Link::empty(),
            depth: AtomicU32::new(0),
            id: change.made,
            key,
            name,
            children: AtomicU32::new(0),
        });
        self.enlist(change.made, spot);
        self.enter_quick(spot);
        change.made += 1;
        change.there += 1;
        Ok(self.frames.at(spot))
    }

    /// Checks that there is room for `more` frames.
    pub(crate) fn check_room(&self, change: &Change<'_>, more: usize) -> Result<(), NameError> {
        if change.there + more > self.max_frames {
            return Err(NameError::TooMany(self.max_frames));
        }
        Ok(())
    }

    /// Enters a new frame into both tables, growing them if needed.
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
            for frame in self.all_made() {
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
            for frame in self.all_made() {
                self.enter(self.tables.at(larger), Spot::of(frame));
            }
            self.names.store(larger, Ordering::Release);
        }
    }

    fn enter_quick(&self, spot: Spot<Frame>) {
        let link = &self.quick[self.frames.at(spot).key.hash() as usize % QUICK];
        if link.load(Ordering::Relaxed).is_none() {
            link.store(spot, Ordering::Release);
        }
    }

    fn enter(&self, table: &Table<Frame>, spot: Spot<Frame>) {
        let mut at = self.frames.at(spot).key.hash();
        while table.link(at).load(Ordering::Relaxed).is_some() {
            at = at.wrapping_add(1);
        }
        table.link(at).store(spot, Ordering::Release);
    }

    /// Makes the epoch odd, and even again when the result is dropped: readers retry in between.
    pub(crate) fn alter<'a>(&'a self, _change: &Change<'_>) -> Altering<'a> {
        // Only the holder of the change writes the epoch.
        let epoch = self.epoch.load(Ordering::Relaxed);
        self.epoch.store(epoch + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        Altering(self)
    }

    /// Adds an edge between two frames, of which the child has none: static if there is a pose.
    pub(crate) fn connect<'a>(
        &'a self,
        change: &mut Change<'_>,
        (parent, child): (&'a Frame, &'a Frame),
        pose: Option<&Pose>,
        bounds: Bounds,
    ) -> &'a Edge {
        let ends = (Spot::of(parent), Spot::of(child));
        let spot = match change.spare.pop() {
            Some(spot) => spot,
            None => self.edges.put(Edge::new(ends, pose, bounds, child.id)),
        };
        let edge = self.edges.at(spot);
        let _odd = self.alter(change);
        edge.give_to(ends, pose, bounds, &self.pool);
        child.edge.store(spot, Ordering::Release);
        self.hang(change, parent, child);
        edge
    }

    /// Moves an edge to another parent.
    pub(crate) fn move_edge(
        &self,
        change: &mut Change<'_>,
        _odd: &Altering<'_>,
        edge: &Edge,
        parent: &Frame,
    ) {
        let (before, child) = (self.frames.at(edge.parent()), self.frames.at(edge.child()));
        before.children.fetch_sub(1, Ordering::Relaxed);
        edge.set_parent(Spot::of(parent));
        self.hang(change, parent, child);
    }

    /// Records that a frame is a child of a parent.
    fn hang(&self, change: &mut Change<'_>, parent: &Frame, child: &Frame) {
        parent.children.fetch_add(1, Ordering::Relaxed);
        if child.children.load(Ordering::Relaxed) == 0 && !change.is_cyclic {
            // It has no children: it cannot create a cycle, and no other depths change.
            let depth = parent.depth.load(Ordering::Relaxed);
            child
                .depth
                .store(depth.saturating_add(1).min(REMOVED - 1), Ordering::Relaxed);
        } else {
            self.is_stale.store(true, Ordering::Relaxed);
        }
        self.count_disorder(change);
    }

    /// Records whether an edge has samples of several parents. While the epoch is odd.
    pub(crate) fn count_mixed(&self, change: &mut Change<'_>, before: bool, after: bool) {
        match (before, after) {
            (false, true) => change.mixed += 1,
            (true, false) => change.mixed -= 1,
            _ => return,
        }
        self.count_disorder(change);
    }

    fn count_disorder(&self, change: &Change<'_>) {
        let is_stale = self.is_stale.load(Ordering::Relaxed);
        let disorder = change.mixed + usize::from(change.is_cyclic) + usize::from(is_stale);
        self.disorder.store(disorder, Ordering::Relaxed);
    }

    /// Recomputes the depths if that is due and no other thread is changing the tree: so many edges can
    /// be added without it, and no reader waits.
    pub(crate) fn tidy(&self) {
        if self.is_stale.load(Ordering::Relaxed)
            && let Ok(mut change) = self.change.try_lock()
            && self.is_stale.load(Ordering::Relaxed)
        {
            let _odd = self.alter(&change);
            self.measure_depths(&mut change);
        }
    }

    fn measure_depths(&self, change: &mut Change<'_>) {
        // Zero for unknown depths.
        let mut depths = vec![0_u32; change.made as usize];
        let mut is_cyclic = false;
        let mut way = Vec::new();
        for frame in self.all() {
            let mut at = frame;
            let top = loop {
                match depths[at.id as usize] {
                    0 => {}
                    // Already on the path: a cycle, of which any frame may be the top.
                    u32::MAX => {
                        is_cyclic = true;
                        break 1;
                    }
                    known => break known,
                }
                depths[at.id as usize] = u32::MAX;
                way.push(at.id);
                match self.edge_of(at) {
                    Some(edge) => at = self.frames.at(edge.parent()),
                    None => break 0,
                }
            };
            for (above, id) in way.drain(..).rev().enumerate() {
                depths[id as usize] = top + 1 + above as u32;
            }
        }
        for frame in self.all() {
            let depth = depths[frame.id as usize].saturating_sub(1);
            frame.depth.store(depth, Ordering::Relaxed);
        }
        change.is_cyclic = is_cyclic;
        self.is_stale.store(false, Ordering::Relaxed);
        self.count_disorder(change);
    }

    /// Whether `upper` is `lower` or currently above it.
    pub(crate) fn is_above(&self, _change: &Change<'_>, upper: &Frame, lower: &Frame) -> bool {
        if upper.children.load(Ordering::Relaxed) == 0 {
            return std::ptr::eq(upper, lower);
        }
        let mut found = std::ptr::eq(upper, lower);
        self.climb_now(lower, |frame| {
            found |= std::ptr::eq(frame, upper);
            !found
        });
        found
    }

    /// Removes a frame without children from the tree. Its name is kept, and its edge is reused.
    pub(crate) fn remove(&self, change: &mut Change<'_>, frame: &Frame) {
        let odd = self.alter(change);
        if let Some(edge) = self.edge_of(frame) {
            let above = self.frames.at(edge.parent());
            above.children.fetch_sub(1, Ordering::Relaxed);
            let held = edge.history.hold();
            self.count_mixed(change, edge.history.is_mixed(), false);
            edge.history.retire(&held, &self.pool);
            frame.edge.clear(Ordering::Release);
            change.spare.push(Spot::of(edge));
        }
        frame.depth.store(REMOVED, Ordering::Release);
        change.there -= 1;
        drop(odd);
    }
}

/// While this lives, the epoch is odd.
pub(crate) struct Altering<'a>(&'a Graph);

impl Drop for Altering<'_> {
    fn drop(&mut self) {
        let epoch = self.0.epoch.load(Ordering::Relaxed);
        self.0.epoch.store(epoch + 1, Ordering::Release);
    }
}
