//! The ordered store under a window.
//!
//! A flat ring is the fastest store for messages that arrive in order, but a late one shifts everything after it. So
//! the ring is cut into *runs* of about a hundred messages: an append touches the last run, an eviction the first,
//! and a late message shifts at most one run, however late it is. A run is also what a reader borrows: handing out a
//! hundred messages costs one reference count. A writer that has to change a borrowed run changes a copy, so a
//! reader's view never changes.

use std::collections::VecDeque;
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::Arc as Lent;

use asof_align::{count_below, gallop};
#[cfg(loom)]
use loom::sync::Arc as Lent;

/// A run is split when it holds this many messages.
const RUN_MAX: usize = if cfg!(loom) { 4 } else { 128 };
/// An append starts a new run at this many, so that late messages find room without a split.
const RUN_FILL: usize = if cfg!(loom) { 3 } else { 112 };
/// A borrowed run with at least this many messages is closed instead of copied.
const RUN_CLOSE: usize = if cfg!(loom) { 2 } else { 32 };

/// How late a message usually is at most, in messages and in runs: so many are looked at one by one, from the end. How many
/// they will be is unpredictable, and a search by halves would be wrong about each of its steps.
const LATE_MESSAGES: usize = 32;
const LATE_RUNS: usize = 2;

/// Up to this many runs are searched linearly.
const MAX_LINEAR_RUNS: usize = 12;

/// A message and its weight.
pub(crate) struct WeightedMessage<T> {
    pub(crate) value: Arc<T>,
    pub(crate) bytes: u64,
}

/// A stamp with its message, side by side: finding the one brings the other in the same cache line.
struct Slot<T> {
    stamp: i64,
    value: Option<Arc<T>>,
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Slot {
            stamp: self.stamp,
            value: self.value.clone(),
        }
    }
}

/// Some messages in order. Invariant: both vectors are equally long, stamps are sorted, and the slots before `start`
/// are empty while those from it on are not.
pub(crate) struct Run<T> {
    start: usize,
    slots: Vec<Slot<T>>,
    weights: Vec<u64>,
}

impl<T> Default for Run<T> {
    fn default() -> Self {
        Run {
            start: 0,
            slots: Vec::new(),
            weights: Vec::new(),
        }
    }
}

impl<T> Run<T> {
    fn empty() -> Self {
        Run {
            start: 0,
            slots: Vec::with_capacity(RUN_MAX),
            weights: Vec::with_capacity(RUN_MAX),
        }
    }

    /// One past the last message.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(crate) fn stamp(&self, index: usize) -> i64 {
        self.slots[index].stamp
    }

    #[inline]
    pub(crate) fn value(&self, index: usize) -> &Arc<T> {
        let value = self.slots[index].value.as_ref();
        value.expect("slots from `start` on are filled")
    }

    #[inline]
    fn message(&self, index: usize) -> (i64, &Arc<T>) {
        let slot = &self.slots[index];
        let value = slot.value.as_ref();
        (slot.stamp, value.expect("slots from `start` on are filled"))
    }

    /// The messages from `start` up to but not including `end`.
    #[inline]
    pub(crate) fn range(
        &self,
        start: usize,
        end: usize,
    ) -> impl ExactSizeIterator<Item = (i64, &Arc<T>)> + DoubleEndedIterator {
        self.slots[start..end].iter().map(|slot| {
            let value = slot.value.as_ref();
            (slot.stamp, value.expect("slots from `start` on are filled"))
        })
    }

    /// The first place from `from` up to `to` whose stamp is not below `t`.
    #[inline]
    pub(crate) fn first_from(&self, from: usize, to: usize, t: i64, guess: usize) -> usize {
        let slots = &self.slots[from..to];
        let guess = guess.saturating_sub(from);
        from + gallop(slots.len(), t, guess, |index| slots[index].stamp)
    }

    /// The first place whose stamp is after that of a message that came late.
    #[inline]
    fn first_after_late(&self, stamp: i64) -> usize {
        let end = self.end();
        let near = self.start.max(end.saturating_sub(LATE_MESSAGES));
        let later = self.slots[near..]
            .iter()
            .rev()
            .take_while(|slot| slot.stamp > stamp);
        let index = end - later.count();
        if index > near {
            return index;
        }
        self.first_from(self.start, near, stamp.saturating_add(1), near)
    }

    /// The first place whose stamp is not below `t`, and the message nearest to `t`, if the guess is nearly right and
    /// both are well inside the run, as is usual. The error of the guess and the side of the nearest are
    /// unpredictable, so neither is a branch.
    #[inline]
    fn nearest_around(&self, t: i64, guess: usize) -> Option<(usize, (i64, &Arc<T>))> {
        let low = guess.wrapping_sub(3);
        if low < self.start {
            return None;
        }
        let five: &[Slot<T>; 5] = self.slots.get(low..)?.first_chunk()?;
        if five[1].stamp >= t || t > five[4].stamp {
            return None;
        }
        let before = 1 + usize::from(five[2].stamp < t) + usize::from(five[3].stamp < t);
        let to_before = t.wrapping_sub(five[before].stamp) as u64;
        let to_after = five[before + 1].stamp.wrapping_sub(t) as u64;
        let nearest = before + usize::from(to_after < to_before);
        let found = &five[nearest];
        // Of equal stamps the first is wanted, which is then further back.
        if five[nearest - 1].stamp == found.stamp {
            return None;
        }
        let message = (found.stamp, found.value.as_ref()?);
        Some((low + before + 1, message))
    }

    #[inline]
    fn push(&mut self, stamp: i64, held: WeightedMessage<T>) {
        self.slots.push(Slot {
            stamp,
            value: Some(held.value),
        });
        self.weights.push(held.bytes);
    }

    #[inline]
    fn pop_first(&mut self) -> Option<WeightedMessage<T>> {
        let value = self.slots.get_mut(self.start)?.value.take()?;
        let bytes = self.weights[self.start];
        self.start += 1;
        Some(WeightedMessage { value, bytes })
    }

    /// Puts a message at `index`, shifting the shorter side if there is room on both.
    fn insert(&mut self, index: usize, stamp: i64, held: WeightedMessage<T>) {
        let slot = Slot {
            stamp,
            value: Some(held.value),
        };
        if self.start > 0 && index - self.start < self.end() - index {
            self.start -= 1;
            self.slots[self.start..index].rotate_left(1);
            self.slots[index - 1] = slot;
            self.weights.copy_within(self.start + 1..index, self.start);
            self.weights[index - 1] = held.bytes;
        } else {
            self.slots.insert(index, slot);
            self.weights.insert(index, held.bytes);
        }
    }

    /// Removes the empty slots at the front.
    fn compact(&mut self) {
        self.slots.drain(..self.start);
        self.weights.drain(..self.start);
        self.start = 0;
    }

    fn split_off(&mut self, index: usize) -> Self {
        let mut rest = Run::empty();
        rest.slots.extend(self.slots.drain(index..));
        rest.weights.extend(self.weights.drain(index..));
        rest
    }

    fn copy(&self) -> Self {
        let mut copy = Run::empty();
        copy.slots.extend_from_slice(&self.slots[self.start..]);
        copy.weights.extend_from_slice(&self.weights[self.start..]);
        copy
    }
}

/// A run that is owned, or one that readers may have borrowed.
enum RunSlot<T> {
    Own(Run<T>),
    Lent(Lent<Run<T>>),
}

impl<T> RunSlot<T> {
    #[inline]
    fn run(&self) -> &Run<T> {
        match self {
            RunSlot::Own(run) => run,
            RunSlot::Lent(run) => run,
        }
    }

    /// The run for writing: taken back if no reader has it any more, else copied.
    #[inline]
    fn own(&mut self) -> &mut Run<T> {
        if let RunSlot::Lent(_) = self {
            self.take_back();
        }
        match self {
            RunSlot::Own(run) => run,
            RunSlot::Lent(_) => unreachable!("taken back above"),
        }
    }

    #[cold]
    fn take_back(&mut self) {
        if let RunSlot::Lent(lent) = std::mem::replace(self, RunSlot::Own(Run::default())) {
            *self = RunSlot::Own(Lent::try_unwrap(lent).unwrap_or_else(|lent| lent.copy()));
        }
    }

    fn lend(&mut self) -> Lent<Run<T>> {
        if let RunSlot::Own(run) = self {
            *self = RunSlot::Lent(Lent::new(std::mem::take(run)));
        }
        match self {
            RunSlot::Lent(run) => Lent::clone(run),
            RunSlot::Own(_) => unreachable!("lent above"),
        }
    }

    fn is_lent_out(&self) -> bool {
        matches!(self, RunSlot::Lent(run) if Lent::strong_count(run) > 1)
    }
}

/// The position of a message: its run and its index in it. The end is one past the last run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct At {
    run: usize,
    index: usize,
}

/// Where a search ended, as a guess for the next one: right or wrong, the answer is the same.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Hint {
    run: usize,
    index: usize,
    stride: usize,
}

/// Messages ordered by stamp; those with equal stamps in order of arrival.
///
/// Invariant: no run is empty, `firsts[i]` is the first stamp of `places[i]`, runs are in order.
pub(crate) struct Runs<T> {
    /// A plain vector: there are few runs, and it is searched far more often than a run is dropped.
    firsts: Vec<i64>,
    places: VecDeque<RunSlot<T>>,
    len: usize,
    newest: i64,
    spare: Option<Run<T>>,
    pace: Pace,
}

/// The message density, for a first guess: measured when a run is started, so a guess costs a multiplication.
#[derive(Clone, Copy, Default)]
struct Pace {
    runs: Density,
    messages: Density,
}

/// How many there are per nanosecond, as a 64-bit fixed-point fraction: less than one.
#[derive(Clone, Copy, Default)]
struct Density(u64);

impl Density {
    fn new(count: usize, nanos: f64) -> Self {
        // A conversion that saturates.
        Density((count as f64 / nanos * 2f64.powi(64)) as u64)
    }

    /// How many there are in `nanos` nanoseconds.
    #[inline]
    fn within(self, nanos: u64) -> usize {
        ((u128::from(nanos) * u128::from(self.0)) >> 64) as usize
    }
}

impl<T> Runs<T> {
    pub(crate) fn new() -> Self {
        Runs {
            firsts: Vec::new(),
            places: VecDeque::new(),
            len: 0,
            newest: i64::MIN,
            spare: None,
            pace: Pace::default(),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn oldest(&self) -> Option<i64> {
        self.firsts.first().copied()
    }

    #[inline]
    pub(crate) fn newest(&self) -> Option<i64> {
        (self.len > 0).then_some(self.newest)
    }

    /// Inserts a message after all that have its stamp or an earlier one.
    #[inline]
    pub(crate) fn insert(&mut self, stamp: i64, held: WeightedMessage<T>) {
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
        self.start_run(stamp, held);
    }

    /// Inserts the newest message into a run of its own.
    #[cold]
    #[inline(never)]
    fn start_run(&mut self, stamp: i64, held: WeightedMessage<T>) {
        let mut run = self.spare.take().unwrap_or_else(Run::empty);
        run.push(stamp, held);
        self.firsts.push(stamp);
        self.places.push_back(RunSlot::Own(run));
        self.take_pace();
    }

    #[cold]
    fn take_pace(&mut self) {
        let (Some(&first), Some(&last)) = (self.firsts.first(), self.firsts.last()) else {
            return;
        };
        let span = last.abs_diff(first).max(1) as f64;
        self.pace = Pace {
            runs: Density::new(self.firsts.len() - 1, span),
            messages: Density::new(self.len - 1, span),
        };
    }

    /// Where in a run `t` would be if messages were evenly spaced.
    #[inline]
    fn guess_in(&self, run: &Run<T>, t: i64) -> usize {
        let ahead = t.wrapping_sub(run.stamp(run.start)) as u64;
        // From the first not below t: a stamp exactly there is one place on.
        run.start
            .saturating_add(self.pace.messages.within(ahead))
            .saturating_add(1)
    }

    #[inline(never)]
    fn insert_late(&mut self, stamp: i64, held: WeightedMessage<T>) {
        // The last run that starts at or before the stamp; the first run if none does.
        let count = self.firsts.len();
        let mut number = (count.saturating_sub(LATE_RUNS)..count)
            .rev()
            .find(|&number| self.firsts[number] <= stamp)
            .unwrap_or_else(|| self.runs_before(stamp.saturating_add(1)).saturating_sub(1));
        // Owned before it is measured: the copy of a borrowed run has no empty slots.
        let run = self.places[number].own();
        if run.end() >= RUN_MAX {
            if run.start > 0 {
                run.compact();
            } else {
                let rest = run.split_off(RUN_MAX / 2);
                let first = rest.stamp(0);
                self.firsts.insert(number + 1, first);
                self.places.insert(number + 1, RunSlot::Own(rest));
                number += usize::from(first <= stamp);
            }
        }
        let run = self.places[number].own();
        let index = run.first_after_late(stamp);
        run.insert(index, stamp, held);
        self.firsts[number] = run.stamp(run.start);
    }

    /// Removes the message with the smallest stamp; of equal ones, the first to arrive.
    #[inline]
    pub(crate) fn pop_first(&mut self) -> Option<WeightedMessage<T>> {
        let run = self.places.front_mut()?.own();
        let held = run.pop_first();
        self.len -= 1;
        if let Some(slot) = run.slots.get(run.start) {
            self.firsts[0] = slot.stamp;
        } else {
            self.drop_first_run();
        }
        held
    }

    /// Removes the message with the largest stamp; of equal ones, the last to arrive.
    #[cold]
    pub(crate) fn pop_last(&mut self) -> Option<WeightedMessage<T>> {
        let run = self.places.back_mut()?.own();
        let value = run.slots.pop()?.value?;
        let bytes = run.weights.pop()?;
        self.len -= 1;
        if run.end() == run.start {
            self.places.pop_back();
            self.firsts.pop();
        }
        if let Some(place) = self.places.back() {
            let run = place.run();
            self.newest = run.stamp(run.end() - 1);
        }
        // Guesses are based on the message density, which a stamp far off has distorted.
        self.take_pace();
        Some(WeightedMessage { value, bytes })
    }

    /// Replaces the last message with this stamp and returns it; `Err` if there is none.
    #[cold]
    pub(crate) fn replace(
        &mut self,
        stamp: i64,
        held: WeightedMessage<T>,
    ) -> Result<WeightedMessage<T>, WeightedMessage<T>> {
        let Some(at) = self.previous(self.first_after(stamp)) else {
            return Err(held);
        };
        if self.stamp(at) != Some(stamp) {
            return Err(held);
        }
        let run = self.places[at.run].own();
        // The copy of a borrowed run has no empty slots at its front.
        let index = run.first_from(run.start, run.end(), stamp.saturating_add(1), run.end()) - 1;
        match run.slots[index].value.replace(held.value) {
            Some(value) => {
                let bytes = std::mem::replace(&mut run.weights[index], held.bytes);
                Ok(WeightedMessage { value, bytes })
            }
            None => unreachable!("no slot from the start on is empty"),
        }
    }

    /// Whether a message has this stamp.
    #[cold]
    pub(crate) fn contains(&self, stamp: i64) -> bool {
        self.stamp(self.first_from(stamp)) == Some(stamp)
    }

    #[cold]
    #[inline(never)]
    fn drop_first_run(&mut self) {
        self.firsts.remove(0);
        if let Some(RunSlot::Own(mut run)) = self.places.pop_front() {
            run.slots.clear();
            run.weights.clear();
            run.start = 0;
            if run.slots.capacity() == RUN_MAX {
                self.spare = Some(run);
            }
        }
    }

    /// How many runs start before `t`.
    #[inline]
    fn runs_before(&self, t: i64) -> usize {
        let firsts = self.firsts.as_slice();
        if firsts.len() <= MAX_LINEAR_RUNS {
            // Which of a few runs holds t is unpredictable: all are counted, without a branch.
            return firsts.iter().map(|&first| usize::from(first < t)).sum();
        }
        let last = firsts[firsts.len() - 1];
        if last < t {
            return firsts.len();
        }
        // Counted from the end: the first run moves with every eviction, the last one stays.
        let back = self.pace.runs.within(last.wrapping_sub(t) as u64);
        let guess = (firsts.len() - 1).saturating_sub(back);
        count_below(firsts, t, guess)
    }

    /// The first message at `t` or later; the end if there is none.
    #[inline]
    pub(crate) fn first_from(&self, t: i64) -> At {
        let Some((number, run, index)) = self.split(t) else {
            return self.begin();
        };
        if index < run.end() {
            At { run: number, index }
        } else {
            self.begin_of(number + 1)
        }
    }

    /// The last message before `t`.
    #[inline]
    pub(crate) fn last_before(&self, t: i64) -> Option<At> {
        let (run, _, index) = self.split(t)?;
        Some(At {
            run,
            index: index - 1,
        })
    }

    /// The last message at or before `t`.
    #[inline]
    pub(crate) fn before(&self, t: i64) -> Option<(i64, &Arc<T>)> {
        let Some(next) = t.checked_add(1) else {
            return self.get(self.previous(self.end())?);
        };
        let (_, run, index) = self.split(next)?;
        Some(run.message(index - 1))
    }

    /// The message nearest to `t`; the earlier of two that are equally far, the first to arrive of equal ones.
    #[inline]
    pub(crate) fn nearest(&self, t: i64) -> Option<(i64, &Arc<T>)> {
        let number = self.runs_before(t).wrapping_sub(1);
        let Some(place) = self.places.get(number) else {
            return self.get(self.begin());
        };
        let run = place.run();
        let guess = self.guess_in(run, t);
        if let Some((_, message)) = run.nearest_around(t, guess) {
            return Some(message);
        }
        let index = run.first_from(run.start, run.end(), t, guess);
        self.nearest_of(t, number, index)
    }

    /// Like [`Runs::nearest`] for repeated queries with ascending instants: the search starts about as far from the
    /// last place as that was from the one before.
    #[inline]
    pub(crate) fn nearest_near(&self, t: i64, hint: &mut Hint) -> Option<(i64, &Arc<T>)> {
        let firsts = self.firsts.as_slice();
        let is_here = firsts.get(hint.run).is_some_and(|&first| first < t)
            && firsts.get(hint.run + 1).is_none_or(|&next| t <= next);
        if !is_here {
            return self.nearest_elsewhere(t, hint);
        }
        let run = self.places[hint.run].run();
        let guess = hint.index + hint.stride;
        if let Some((index, message)) = run.nearest_around(t, guess) {
            hint.stride = index.saturating_sub(hint.index);
            hint.index = index;
            return Some(message);
        }
        let index = run.first_from(run.start, run.end(), t, guess);
        hint.stride = index.saturating_sub(hint.index);
        hint.index = index;
        self.nearest_of(t, hint.run, index)
    }

    fn nearest_elsewhere(&self, t: i64, hint: &mut Hint) -> Option<(i64, &Arc<T>)> {
        let Some((number, _, index)) = self.split(t) else {
            return self.get(self.begin());
        };
        (hint.run, hint.index) = (number, index);
        self.nearest_of(t, number, index)
    }

    /// The nearest, given that `index` of the run `number` is the first that is not below `t`.
    fn nearest_of(&self, t: i64, number: usize, index: usize) -> Option<(i64, &Arc<T>)> {
        let run = self.places[number].run();
        let before = run.stamp(index - 1);
        if index == run.end() {
            let is_after = self
                .firsts
                .get(number + 1)
                .is_some_and(|after| after.abs_diff(t) < before.abs_diff(t));
            let stamp = if is_after {
                self.firsts[number + 1]
            } else {
                before
            };
            return self.get(self.first_from(stamp));
        }
        let is_after = run.stamp(index).abs_diff(t) < before.abs_diff(t);
        let index = index - usize::from(!is_after);
        let found = run.message(index);
        if index > run.start && run.stamp(index - 1) != found.0 {
            return Some(found);
        }
        self.get(self.first_from(found.0))
    }

    /// The last run that starts before `t`, and the first place in it whose stamp is not below `t`; there is always
    /// one before that place.
    #[inline]
    fn split(&self, t: i64) -> Option<(usize, &Run<T>, usize)> {
        let number = self.runs_before(t).checked_sub(1)?;
        let run = self.places[number].run();
        let index = run.first_from(run.start, run.end(), t, self.guess_in(run, t));
        Some((number, run, index))
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
                // Nothing left to go back: the place is after this run.
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
        Some(run.message(at.index))
    }

    /// The stamp at a place; `None` at the end.
    #[inline]
    pub(crate) fn stamp(&self, at: At) -> Option<i64> {
        Some(self.places.get(at.run)?.run().stamp(at.index))
    }

    /// Borrows the runs that hold the messages from `from` up to but not including `to`.
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

    /// Removes everything, as runs.
    pub(crate) fn take_all(&mut self) -> Runs<T> {
        std::mem::replace(self, Runs::new())
    }
}

/// Part of a borrowed run: its messages from `start` up to but not including `end`.
pub(crate) struct Piece<T> {
    pub(crate) run: Lent<Run<T>>,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl<T> Clone for Piece<T> {
    fn clone(&self) -> Self {
        Piece {
            run: Lent::clone(&self.run),
            start: self.start,
            end: self.end,
        }
    }
}
