//! How frames and edges are made.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::{Change, Edge, Frame, Graph, NONE, QUICK};
use crate::error::UpdateError;
use crate::history::Bounds;
use crate::name::{FrameName, Key};
use crate::pose::Pose;
use crate::shelf::{Link, Spot, Table};

/// Why a name gives no frame.
pub enum NameError {
    Bad(&'static str),
    TooMany(usize),
    Foreign,
}

impl Graph {
    /// Makes every path that was resolved before resolve itself again.
    pub(crate) fn bump(&self, _change: &Change<'_>) {
        let epoch = self.epoch.load(Ordering::Relaxed);
        self.epoch.store(epoch + 2, Ordering::Release);
    }

    /// The frame with this name, made if there is none.
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

    /// A new frame, whose name is not there yet.
    pub(crate) fn make<'a>(
        &'a self,
        change: &mut Change<'_>,
        name: FrameName,
    ) -> Result<&'a Frame, NameError> {
        self.check_room(change, 1)?;
        let spot = self.frames.put(Frame {
            edge: Link::empty(),
            depth: AtomicU32::new(0),
            id: **change,
            key: Key::of(name.bytes()),
            name,
            first_child: AtomicU32::new(NONE),
            next_sibling: AtomicU32::new(NONE),
        });
        self.enlist(**change, spot);
        self.enter_quick(spot);
        **change += 1;
        Ok(self.frames.at(spot))
    }

    /// Whether there may be so many more frames.
    pub(crate) fn check_room(&self, change: &Change<'_>, more: usize) -> Result<(), NameError> {
        if **change as usize + more > self.max_frames {
            return Err(NameError::TooMany(self.max_frames));
        }
        Ok(())
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
        if child.first_child.load(Ordering::Relaxed) != NONE && self.is_above(child, parent) {
            let (parent, child) = names();
            return Err(UpdateError::Cycle { parent, child });
        }
        let previous = child.edge.load(Ordering::Relaxed);
        let _ = change;
        let ends = (Spot::of(parent), Spot::of(child));
        let edge = self
            .edges
            .put(Edge::new(ends, pose, bounds, previous, child.id));
        // Only the holder of the change writes the epoch.
        let epoch = self.epoch.load(Ordering::Relaxed);
        self.epoch.store(epoch + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        if let Some(previous) = previous {
            self.has_eras.store(true, Ordering::Relaxed);
            self.unlink(self.frames.at(self.edges.at(previous).parent()), child);
        }
        let sibling = parent.first_child.load(Ordering::Relaxed);
        child.next_sibling.store(sibling, Ordering::Relaxed);
        parent.first_child.store(child.id, Ordering::Relaxed);
        child.edge.store(edge, Ordering::Release);
        self.sink(child, parent.depth.load(Ordering::Relaxed) + 1);
        self.epoch.store(epoch + 2, Ordering::Release);
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
                Some(edge) => at = self.frames.at(edge.parent()),
                None => return false,
            }
        }
    }

    fn unlink(&self, parent: &Frame, child: &Frame) {
        let mut link = &parent.first_child;
        while let Some(frame) = self.numbered(link.load(Ordering::Relaxed)) {
            if std::ptr::eq(frame, child) {
                link.store(
                    frame.next_sibling.load(Ordering::Relaxed),
                    Ordering::Relaxed,
                );
                return;
            }
            link = &frame.next_sibling;
        }
    }

    /// Sets the depth of a frame and of all that is below it.
    fn sink(&self, top: &Frame, depth: u32) {
        top.depth.store(depth, Ordering::Relaxed);
        let first = top.first_child.load(Ordering::Relaxed);
        if first == NONE {
            return;
        }
        let mut open = vec![(first, depth + 1)];
        while let Some((number, depth)) = open.pop() {
            let Some(frame) = self.numbered(number) else {
                continue;
            };
            frame.depth.store(depth, Ordering::Relaxed);
            open.push((frame.first_child.load(Ordering::Relaxed), depth + 1));
            open.push((frame.next_sibling.load(Ordering::Relaxed), depth));
        }
    }
}
