//! The queries of a window.

use std::sync::Arc;
use std::time::Duration;

use asof_align::between::part;
use asof_core::Stamp;

use crate::runs::{At, Runs};
use crate::{Bracket, Entry, Interpolate, View, Window};

/// Up to this many messages are copied out under the lock; more are borrowed as runs and copied after it.
const MAX_COPIED: usize = 16;

impl<T> Window<T> {
    /// The messages from `a` to `b`, both included, as handles in order. Empty when `a > b`.
    pub fn interval(&self, a: Stamp, b: Stamp) -> Vec<Entry<T>> {
        self.view(a, b).to_entries()
    }

    /// The messages from `a` to `b`, both included, borrowed: cheaper than [`Window::interval`] by the cost of a
    /// handle for each.
    pub fn view(&self, a: Stamp, b: Stamp) -> View<T> {
        if a > b {
            return View::empty();
        }
        self.lend(|runs| (runs.first_from(a.nanos()), runs.first_after(b.nanos())))
    }

    /// All current messages, borrowed.
    pub fn snapshot(&self) -> View<T> {
        self.lend(|runs| (runs.begin(), runs.end()))
    }

    /// All current messages, in order of their stamps.
    pub fn iter(&self) -> std::vec::IntoIter<Entry<T>> {
        self.snapshot().into_iter()
    }

    /// The last message at or before `t`.
    #[inline]
    pub fn before(&self, t: Stamp) -> Option<Entry<T>> {
        let state = self.lock();
        state.runs.before(t.nanos()).map(handle)
    }

    /// The first message at or after `t`.
    #[inline]
    pub fn after(&self, t: Stamp) -> Option<Entry<T>> {
        self.find(|runs| Some(runs.first_from(t.nanos())))
    }

    /// The last message strictly before `t`.
    #[inline]
    pub fn strictly_before(&self, t: Stamp) -> Option<Entry<T>> {
        self.find(|runs| runs.last_before(t.nanos()))
    }

    /// The first message strictly after `t`.
    #[inline]
    pub fn strictly_after(&self, t: Stamp) -> Option<Entry<T>> {
        self.find(|runs| Some(runs.first_after(t.nanos())))
    }

    /// The message whose stamp is nearest to `t`; the earlier of two that are equally far.
    #[inline]
    pub fn nearest(&self, t: Stamp) -> Option<Entry<T>> {
        let state = self.lock();
        state.runs.nearest(t.nanos()).map(handle)
    }

    /// The nearest message, if it is within `tolerance` of `t`.
    pub fn nearest_within(&self, t: Stamp, tolerance: Duration) -> Option<Entry<T>> {
        let entry = self.nearest(t)?;
        let distance = u128::from(entry.stamp.nanos().abs_diff(t.nanos()));
        (distance <= tolerance.as_nanos()).then_some(entry)
    }

    /// The messages from the last one at or before `a` to the first one at or after `b`: enough to interpolate
    /// anywhere in between. If there is none on a side, that side ends with the window. Empty when `a > b`.
    pub fn surrounding(&self, a: Stamp, b: Stamp) -> Vec<Entry<T>> {
        if a > b {
            return Vec::new();
        }
        self.around(a, b)
    }

    /// Like [`Window::surrounding`], but returns at least one message when `a > b`.
    pub(crate) fn around(&self, a: Stamp, b: Stamp) -> Vec<Entry<T>> {
        let view = self.lend(|runs| {
            let start = runs.previous(runs.first_after(a.nanos()));
            let start = start.unwrap_or_else(|| runs.begin());
            // From the start on, in case the start itself is already at b.
            let end = match runs.get(start) {
                Some((stamp, _)) if stamp >= b.nanos() => start,
                _ => runs.first_from(b.nanos()),
            };
            (start, runs.next(end))
        });
        view.to_entries()
    }

    /// The message with the largest stamp; of equal ones, the last to arrive.
    pub fn newest(&self) -> Option<Entry<T>> {
        self.find(|runs| runs.previous(runs.end()))
    }

    /// The message with the smallest stamp; of equal ones, the first to arrive.
    pub fn oldest(&self) -> Option<Entry<T>> {
        self.find(|runs| Some(runs.begin()))
    }

    /// The newest `count` messages, oldest of them first.
    pub fn latest(&self, count: usize) -> Vec<Entry<T>> {
        if count <= MAX_COPIED {
            let state = self.lock();
            let mut at = state.runs.last(count);
            let mut entries = Vec::with_capacity(count);
            while let Some((stamp, value)) = state.runs.get(at) {
                entries.push(Entry::new(stamp.into(), Arc::clone(value)));
                at = state.runs.next(at);
            }
            return entries;
        }
        let view = self.lend(|runs| (runs.last(count), runs.end()));
        view.to_entries()
    }

    /// The messages on both sides of `t`; the same one twice if it is exactly at `t`.
    pub fn bracket(&self, t: Stamp) -> Option<Bracket<T>> {
        let t = t.nanos();
        let state = self.lock();
        let at = state.runs.first_from(t);
        let after = entry(&state.runs, at)?;
        if after.stamp.nanos() == t {
            drop(state);
            return Some(Bracket {
                before: after.clone(),
                after,
                fraction: 0.0,
            });
        }
        let before = entry(&state.runs, state.runs.previous(at)?)?;
        drop(state);
        let fraction = part(before.stamp.nanos(), after.stamp.nanos(), t);
        Some(Bracket {
            before,
            after,
            fraction,
        })
    }

    /// The value at `t`, interpolated between the messages on both sides.
    pub fn interpolate(&self, t: Stamp) -> Option<T>
    where
        T: Interpolate,
    {
        self.bracket(t).map(|bracket| bracket.interpolate())
    }

    /// The smallest stamp.
    pub fn oldest_stamp(&self) -> Option<Stamp> {
        self.lock().runs.oldest().map(Stamp::from)
    }

    /// The largest stamp.
    pub fn newest_stamp(&self) -> Option<Stamp> {
        self.lock().runs.newest().map(Stamp::from)
    }

    #[inline]
    fn find(&self, search: impl FnOnce(&Runs<T>) -> Option<At>) -> Option<Entry<T>> {
        let state = self.lock();
        let at = search(&state.runs)?;
        entry(&state.runs, at)
    }

    fn lend(&self, range: impl FnOnce(&Runs<T>) -> (At, At)) -> View<T> {
        let mut state = self.lock();
        let (from, to) = range(&state.runs);
        let pieces = state.runs.lend(from, to);
        drop(state);
        View::new(pieces)
    }
}

/// All current messages, as handles.
impl<T> IntoIterator for &Window<T> {
    type Item = Entry<T>;
    type IntoIter = std::vec::IntoIter<Entry<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[inline]
fn entry<T>(runs: &Runs<T>, at: At) -> Option<Entry<T>> {
    runs.get(at).map(handle)
}

#[inline]
fn handle<T>((stamp, value): (i64, &Arc<T>)) -> Entry<T> {
    Entry::new(stamp.into(), Arc::clone(value))
}
