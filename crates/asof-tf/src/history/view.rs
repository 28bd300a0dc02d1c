//! A reader's view of a history, and the search in it.

use super::{CHUNK, Chunk, Slot};
use crate::pool::Pool;
use crate::shelf::Link;
use crate::sync::{AtomicU64, Ordering};

/// Where `t` falls in a history.
pub(crate) enum Neighbours<'a> {
    /// There is no sample.
    Empty,
    /// A sample has exactly this stamp.
    At(&'a Slot),
    /// Between these two neighbours.
    Between(&'a Slot, &'a Slot),
    /// Before the oldest; also the sample after it, if there is one.
    Before(&'a Slot, Option<&'a Slot>),
    /// After the newest; also the sample before it, if there is one.
    After(&'a Slot, Option<&'a Slot>),
}

/// The history as read at one moment.
pub(crate) struct View<'a> {
    pub(super) pool: &'a Pool,
    /// Their number is a power of two.
    pub(super) links: &'a [Link<Chunk>],
    pub(super) rate: &'a AtomicU64,
    pub(super) head: u64,
    pub(super) tail: u64,
    pub(super) seq: u64,
    /// The stamp of the newest sample or of an earlier one: times before it are not after all samples.
    pub(super) stamp: i64,
}

impl<'a> View<'a> {
    /// Oldest index.
    #[inline(always)]
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    /// Whether its last known stamp is before `t`.
    #[inline(always)]
    pub(crate) fn is_before(&self, t: i64) -> bool {
        self.stamp < t
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> u64 {
        self.head.saturating_sub(self.tail)
    }

    /// The slot at an index; `None` if it is not linked (any more).
    #[inline(always)]
    pub(crate) fn slot(&self, index: u64) -> Option<&'a Slot> {
        Some(self.chunk(index)?.slot(index))
    }

    /// The slots at an index and at the next.
    #[inline(always)]
    fn pair(&self, index: u64) -> Option<(&'a Slot, &'a Slot)> {
        let slots = &self.chunk(index)?.slots;
        let place = (index % CHUNK) as usize;
        let next = match slots.get(place + 1) {
            Some(next) => next,
            None => self.slot(index + 1)?,
        };
        Some((&slots[place], next))
    }

    /// The parent of the sample at an index, in a mixed history.
    pub(crate) fn parent(&self, index: u64) -> Option<u32> {
        let parent = self.chunk(index)?.parent(self.pool, index)?;
        Some(parent.load(Ordering::Relaxed))
    }

    /// The chunk that an index is in.
    #[inline(always)]
    fn chunk(&self, index: u64) -> Option<&'a Chunk> {
        let place = (index / CHUNK) as usize & (self.links.len() - 1);
        let spot = self.links[place].load(Ordering::Acquire)?;
        Some(self.pool.chunks.at(spot))
    }

    /// The samples that `t` is between, and the first one's index, if they are where they are expected.
    /// `None` is inconclusive: see [`View::place`].
    #[inline(always)]
    pub(crate) fn expected(&self, t: i64) -> Option<(&'a Slot, &'a Slot, u64)> {
        if self.stamp <= t || self.len() < 2 {
            return None;
        }
        let low = self.guess(t, self.stamp, self.head - 1);
        let (slot, next) = self.pair(low)?;
        (slot.stamp() < t && t < next.stamp()).then_some((slot, next, low))
    }

    /// The samples that `t` is between, or the first one's time, if the first one is at `index`: where it was the last time.
    #[inline(always)]
    pub(crate) fn known(&self, t: i64, index: u64) -> Option<(&'a Slot, &'a Slot)> {
        if index < self.tail || index + 1 >= self.head {
            return None;
        }
        let (slot, next) = self.pair(index)?;
        (slot.stamp() <= t && t < next.stamp()).then_some((slot, next))
    }

    /// The oldest and the newest stamp, of one sample or more.
    #[inline(always)]
    pub(crate) fn ends(&self) -> Option<(i64, i64)> {
        let (newest, _) = self.newest()?;
        Some((self.slot(self.tail)?.stamp(), newest.stamp()))
    }

    /// Where the last sample at or before `t` would be if they were evenly spaced. Any value will do: it
    /// is checked.
    #[inline(always)]
    fn guess(&self, t: i64, newest_stamp: i64, last: u64) -> u64 {
        let back_nanos = u128::from(newest_stamp.wrapping_sub(t) as u64);
        let back = (back_nanos * u128::from(self.rate.load(Ordering::Relaxed))) >> 64;
        (last - 1).saturating_sub(back as u64).max(self.tail)
    }

    /// The newest sample and its index.
    #[inline(always)]
    pub(crate) fn newest(&self) -> Option<(&'a Slot, u64)> {
        let index = self.head - 1;
        Some((self.slot(index)?, index))
    }

    /// Where `t` falls, and the lowest index that this depends on.
    #[inline(always)]
    pub(crate) fn place(&self, t: i64) -> Option<(Neighbours<'a>, u64)> {
        if self.len() == 0 {
            return Some((Neighbours::Empty, self.tail));
        }
        let (mut newest_stamp, last) = (self.stamp, self.head - 1);
        if t >= newest_stamp {
            let newest = self.slot(last)?;
            newest_stamp = newest.stamp();
            if t == newest_stamp {
                return Some((Neighbours::At(newest), last));
            }
            if t > newest_stamp {
                let before = if self.len() > 1 {
                    Some(self.slot(last - 1)?)
                } else {
                    None
                };
                let lowest = last - u64::from(before.is_some());
                return Some((Neighbours::After(newest, before), lowest));
            }
        }
        if self.len() == 1 {
            return Some((Neighbours::Before(self.slot(last)?, None), self.tail));
        }
        self.search(t, newest_stamp, last)
    }

    /// `t` is before the newest of two or more samples.
    #[inline(always)]
    fn search(&self, t: i64, newest_stamp: i64, last: u64) -> Option<(Neighbours<'a>, u64)> {
        let mut low = self.guess(t, newest_stamp, last);
        let (mut slot, mut next) = self.pair(low)?;
        if !(slot.stamp() <= t && t < next.stamp()) {
            low = self.hunt(t, low, last)?;
            if low < self.tail {
                let (oldest, next) = self.pair(self.tail)?;
                return Some((Neighbours::Before(oldest, Some(next)), self.tail));
            }
            (slot, next) = self.pair(low)?;
            // Torn stamps can mislead the search; a bracket that holds is right however it was found.
            if !(slot.stamp() <= t && t < next.stamp()) {
                return None;
            }
        }
        Some((placed(slot, next, t), low))
    }

    /// The last index whose stamp is at or before `t`, searched from a guess outwards; one less than
    /// the oldest if there is none.
    #[inline(never)]
    fn hunt(&self, t: i64, guess: u64, last: u64) -> Option<u64> {
        let (mut low, mut high, mut step) = (guess, guess, 1);
        if self.slot(guess)?.stamp() <= t {
            high = last;
            while low + step < last {
                if self.slot(low + step)?.stamp() > t {
                    high = low + step;
                    break;
                }
                low += step;
                step *= 2;
            }
        } else {
            loop {
                if high == self.tail {
                    return Some(self.tail - 1);
                }
                low = high.saturating_sub(step).max(self.tail);
                if self.slot(low)?.stamp() <= t {
                    break;
                }
                high = low;
                step *= 2;
            }
        }
        self.bisect(low, high, t)
    }

    /// The last index in `low..high` whose stamp is at or before `t`, given that `low`'s is.
    #[inline]
    fn bisect(&self, mut low: u64, mut high: u64, t: i64) -> Option<u64> {
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if self.slot(middle)?.stamp() <= t {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(low)
    }
}

#[inline(always)]
pub(crate) fn placed<'a>(slot: &'a Slot, next: &'a Slot, t: i64) -> Neighbours<'a> {
    if slot.stamp() == t {
        Neighbours::At(slot)
    } else {
        Neighbours::Between(slot, next)
    }
}
