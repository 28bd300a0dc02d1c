//! The ordered store under a window.
//!
//! A flat ring is the fastest store for messages that arrive in order, but a late one shifts everything
//! behind its place. So the ring is cut into *runs* of about a hundred messages: an append touches the
//! last run, an eviction the first, and a message that is late by any amount shifts one run at most.
//! A run is also what a reader borrows: handing out a hundred messages costs one reference count. A writer
//! that has to change a run which is lent out changes a copy of it, so a reader's view never moves.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::search::{count_below, count_below_in, linear_guess};

/// A run is split when it holds this many.
const RUN_MAX: usize = 128;
/// An append starts a new run at this many, so that late messages find room without a split.
const RUN_FILL: usize = 112;
/// A run that is lent out is closed instead of copied from this many on.
const RUN_CLOSE: usize = 32;

/// A message as it is stored.
pub(crate) struct Held<T> {
    pub(crate) value: Arc<T>,
    pub(crate) bytes: u64,
}

impl<T> Clone for Held<T> {
    fn clone(&self) -> Self {
        Held {
            value: Arc::clone(&self.value),
            bytes: self.bytes,
        }
    }
}

/// Some messages in order. Invariant: both vectors are equally long, stamps are sorted, and the places
/// before `start` are empty while those from it on are not.
pub(crate) struct Run<T> {
    start: usize,
    stamps: Vec<i64>,
    held: Vec<Option<Held<T>>>,
}

impl<T> Default for Run<T> {
    fn default() -> Self {
        Run {
            start: 0,
            stamps: Vec::new(),
            held: Vec::new(),
        }
    }
}

impl<T> Run<T> {
    fn empty() -> Self {
        Run {
            start: 0,
            stamps: Vec::with_capacity(RUN_MAX),
            held: Vec::with_capacity(RUN_MAX),
        }
    }

    /// One past the last message.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        self.stamps.len()
    }

    #[inline]
    pub(crate) fn stamps(&self) -> &[i64] {
        &self.stamps
    }

    #[inline]
    pub(crate) fn value(&self, index: usize) -> &Arc<T> {
        let held = self.held[index].as_ref();
        &held.expect("places from `start` on are filled").value
    }

    #[inline]
    fn push(&mut self, stamp: i64, held: Held<T>) {
        self.stamps.push(stamp);
        self.held.push(Some(held));
    }

    #[inline]
    fn pop_first(&mut self) -> Option<Held<T>> {
        let held = self.held.get_mut(self.start)?.take();
        self.start += 1;
        held
    }

    /// Puts a message at `index`, shifting the shorter side if there is room on both.
    fn insert(&mut self, index: usize, stamp: i64, held: Held<T>) {
        if self.start > 0 && index - self.start < self.end() - index {
            self.start -= 1;
            self.stamps.copy_within(self.start + 1..index, self.start);
            self.stamps[index - 1] = stamp;
            self.held[self.start..index].rotate_left(1);
            self.held[index - 1] = Some(held);
        } else {
            self.stamps.insert(index, stamp);
            self.held.insert(index, Some(held));
        }
    }

    /// Gives up the empty places at the front.
    fn compact(&mut self) {
        self.stamps.drain(..self.start);
        self.held.drain(..self.start);
        self.start = 0;
    }

    fn split_off(&mut self, index: usize) -> Self {
        let mut rest = Run::empty();
        rest.stamps.extend(self.stamps.drain(index..));
        rest.held.extend(self.held.drain(index..));
        rest
    }

    fn copy(&self) -> Self {
        let mut copy = Run::empty();
        copy.stamps.extend_from_slice(&self.stamps[self.start..]);
        copy.held.extend_from_slice(&self.held[self.start..]);
        copy
    }
}

/// A run that is the shelf's own, or one that readers may look at.
enum Place<T> {
    Own(Run<T>),
    Lent(Arc<Run<T>>),
}

impl<T> Place<T> {
    #[inline]
    fn run(&self) -> &Run<T> {
        match self {
            Place::Own(run) => run,
            Place::Lent(run) => run,
        }
    }

    /// The run, to be changed: taken back if no reader has it any more, else a copy.
    #[inline]
    fn own(&mut self) -> &mut Run<T> {
        if let Place::Lent(_) = self {
            self.take_back();
        }
        match self {
            Place::Own(run) => run,
            Place::Lent(_) => unreachable!("taken back above"),
        }
    }

    #[cold]
    fn take_back(&mut self) {
        if let Place::Lent(lent) = std::mem::replace(self, Place::Own(Run::default())) {
            *self = Place::Own(Arc::try_unwrap(lent).unwrap_or_else(|lent| lent.copy()));
        }
    }

    fn lend(&mut self) -> Arc<Run<T>> {
        if let Place::Own(run) = self {
            *self = Place::Lent(Arc::new(std::mem::take(run)));
        }
        match self {
            Place::Lent(run) => Arc::clone(run),
            Place::Own(_) => unreachable!("lent above"),
        }
    }

    fn is_lent_out(&self) -> bool {
        matches!(self, Place::Lent(run) if Arc::strong_count(run) > 1)
    }
}

/// Where a message is: its run, and its place in it. The end is one past the last run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct At {
    run: usize,
    index: usize,
}

/// Messages ordered by stamp; those with equal stamps in order of arrival.
///
/// Invariant: no run is empty, `firsts[i]` is the first stamp of `places[i]`, runs are in order.
pub(crate) struct Shelf<T> {
    firsts: VecDeque<i64>,
    places: VecDeque<Place<T>>,
    len: usize,
    newest: i64,
    spare: Option<Run<T>>,
}

impl<T> Shelf<T> {
    pub(crate) fn new() -> Self {
        Shelf {
            firsts: VecDeque::new(),
            places: VecDeque::new(),
            len: 0,
            newest: i64::MIN,
            spare: None,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn oldest(&self) -> Option<i64> {
        self.firsts.front().copied()
    }

    #[inline]
    pub(crate) fn newest(&self) -> Option<i64> {
        (self.len > 0).then_some(self.newest)
    }

    /// Puts a message behind all that have its stamp or an earlier one.
    #[inline]
    pub(crate) fn insert(&mut self, stamp: i64, held: Held<T>) {
        self.len += 1;
        if stamp < self.newest && self.len > 1 {
            self.insert_late(stamp, held);
            return;
        }
        self.newest = stamp;
        if let Some(place) = self.places.back_mut() {
            let end = place.run().end();
            if end < RUN_FILL && !(end >= RUN_CLOSE && place.is_lent_out()) {
                place.own().push(stamp, held);
                return;
            }
        }
        let mut run = self.spare.take().unwrap_or_else(Run::empty);
        run.push(stamp, held);
        self.firsts.push_back(stamp);
        self.places.push_back(Place::Own(run));
    }

    fn insert_late(&mut self, stamp: i64, held: Held<T>) {
        // The last run that starts at or before the stamp; the first run if none does.
        let mut number = self.runs_before(stamp.saturating_add(1)).saturating_sub(1);
        if self.places[number].run().end() >= RUN_MAX {
            let run = self.places[number].own();
            if run.start > 0 {
                run.compact();
            } else {
                let rest = run.split_off(RUN_MAX / 2);
                let first = rest.stamps[0];
                self.firsts.insert(number + 1, first);
                self.places.insert(number + 1, Place::Own(rest));
                number += usize::from(first <= stamp);
            }
        }
        let run = self.places[number].own();
        let behind = count_below_in(&run.stamps[run.start..], stamp.saturating_add(1));
        run.insert(run.start + behind, stamp, held);
        self.firsts[number] = run.stamps[run.start];
    }

    /// Takes out the message with the smallest stamp; of equal ones, the first that came.
    #[inline]
    pub(crate) fn pop_first(&mut self) -> Option<Held<T>> {
        let run = self.places.front_mut()?.own();
        let held = run.pop_first();
        self.len -= 1;
        if let Some(&first) = run.stamps.get(run.start) {
            self.firsts[0] = first;
        } else {
            self.drop_first_run();
        }
        held
    }

    fn drop_first_run(&mut self) {
        self.firsts.pop_front();
        if let Some(Place::Own(mut run)) = self.places.pop_front() {
            run.stamps.clear();
            run.held.clear();
            run.start = 0;
            if run.stamps.capacity() == RUN_MAX {
                self.spare = Some(run);
            }
        }
    }

    /// How many runs start before `t`.
    #[inline]
    fn runs_before(&self, t: i64) -> usize {
        let (Some(&first), Some(&last)) = (self.firsts.front(), self.firsts.back()) else {
            return 0;
        };
        if last < t {
            return self.firsts.len();
        }
        let guess = linear_guess(self.firsts.len(), t, first, last);
        count_below(self.firsts.len(), t, guess, |index| self.firsts[index])
    }

    /// The first message at `t` or later; the end if there is none.
    #[inline]
    pub(crate) fn first_from(&self, t: i64) -> At {
        let runs = self.runs_before(t);
        let Some(number) = runs.checked_sub(1) else {
            return self.begin();
        };
        let run = self.places[number].run();
        let index = run.start + count_below_in(&run.stamps[run.start..], t);
        if index < run.end() {
            At { run: number, index }
        } else {
            self.begin_of(number + 1)
        }
    }

    /// The first message after `t`; the end if there is none.
    #[inline]
    pub(crate) fn first_after(&self, t: i64) -> At {
        match t.checked_add(1) {
            Some(next) => self.first_from(next),
            None => self.end(),
        }
    }

    pub(crate) fn begin(&self) -> At {
        self.begin_of(0)
    }

    pub(crate) fn end(&self) -> At {
        At {
            run: self.places.len(),
            index: 0,
        }
    }

    #[inline]
    fn begin_of(&self, run: usize) -> At {
        let index = self.places.get(run).map_or(0, |place| place.run().start);
        At { run, index }
    }

    #[inline]
    pub(crate) fn previous(&self, at: At) -> Option<At> {
        match self.places.get(at.run) {
            Some(place) if at.index > place.run().start => Some(At {
                index: at.index - 1,
                ..at
            }),
            _ => {
                let run = at.run.checked_sub(1)?;
                let index = self.places[run].run().end() - 1;
                Some(At { run, index })
            }
        }
    }

    pub(crate) fn next(&self, at: At) -> At {
        match self.places.get(at.run) {
            Some(place) if at.index + 1 < place.run().end() => At {
                index: at.index + 1,
                ..at
            },
            _ => self.begin_of(at.run + 1),
        }
    }

    /// The message that is `count` before the end, or the first.
    pub(crate) fn last(&self, count: usize) -> At {
        let mut left = count;
        for (number, place) in self.places.iter().enumerate().rev() {
            let run = place.run();
            let here = run.end() - run.start;
            if left <= here {
                let index = run.end() - left;
                // Nothing left to go back: the place is behind this run.
                return if left == 0 {
                    self.begin_of(number + 1)
                } else {
                    At { run: number, index }
                };
            }
            left -= here;
        }
        self.begin()
    }

    /// The message at a place; `None` at the end.
    #[inline]
    pub(crate) fn get(&self, at: At) -> Option<(i64, &Arc<T>)> {
        let run = self.places.get(at.run)?.run();
        Some((run.stamps[at.index], run.value(at.index)))
    }

    /// The stamp at a place; `None` at the end.
    #[inline]
    pub(crate) fn stamp(&self, at: At) -> Option<i64> {
        Some(self.places.get(at.run)?.run().stamps[at.index])
    }

    /// Lends out the runs that hold the messages from `from` up to but not including `to`.
    pub(crate) fn lend(&mut self, from: At, to: At) -> Vec<Piece<T>> {
        let mut pieces = Vec::new();
        let last = to.run.min(self.places.len());
        let last_is_touched =
            to.run < self.places.len() && to.index > self.places[to.run].run().start;
        for number in from.run..last + usize::from(last_is_touched) {
            let run = self.places[number].lend();
            let start = if number == from.run {
                from.index
            } else {
                run.start
            };
            let end = if number == to.run {
                to.index
            } else {
                run.end()
            };
            if start < end {
                pieces.push(Piece { run, start, end });
            }
        }
        pieces
    }

    /// Takes out everything, as runs.
    pub(crate) fn take_all(&mut self) -> Shelf<T> {
        std::mem::replace(self, Shelf::new())
    }
}

/// Part of a run that is lent out: its messages from `start` up to but not including `end`.
pub(crate) struct Piece<T> {
    pub(crate) run: Arc<Run<T>>,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl<T> Clone for Piece<T> {
    fn clone(&self) -> Self {
        Piece {
            run: Arc::clone(&self.run),
            start: self.start,
            end: self.end,
        }
    }
}
