//! Messages of a recording for alignment.

use asof_core::Stamp;

use crate::search::count_below;
use crate::{Match, Pick, Rule, Side, Stamped};

/// Messages of one topic in order of their stamps: a recording or a part of one.
///
/// ```
/// use asof_align::{Rule, Track};
///
/// let imu: Track<_> = [(10, "a"), (20, "b")].map(|(t, v)| (t.into(), v)).into_iter().collect();
/// let mut cursor = imu.cursor();
/// let matched = cursor.pick(14.into(), Rule::nearest());
/// assert_eq!(matched.found().map(|message| *message.value), Some("a"));
/// ```
#[derive(Debug, Clone)]
pub struct Track<T> {
    stamps: Vec<i64>,
    values: Vec<T>,
}

/// A position in a [`Track`] that moves along with the queried instants.
///
/// Ascending instants cost a step or two each; any order gives the right result.
#[derive(Debug, Clone)]
pub struct Cursor<'a, T> {
    track: &'a Track<T>,
    /// How many stamps are before the last instant.
    place: usize,
    /// How far it moved last time: the next instant is about as far again.
    stride: usize,
}

impl<T> Track<T> {
    /// The number of messages.
    pub fn len(&self) -> usize {
        self.stamps.len()
    }

    /// Whether it has no messages.
    pub fn is_empty(&self) -> bool {
        self.stamps.is_empty()
    }

    /// A cursor at the start.
    pub fn cursor(&self) -> Cursor<'_, T> {
        Cursor {
            track: self,
            place: 0,
            stride: 0,
        }
    }

    /// All messages, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Stamp, &T)> + DoubleEndedIterator {
        let stamps = self.stamps.iter().map(|&stamp| Stamp::from(stamp));
        stamps.zip(&self.values)
    }

    /// The first to arrive of those with one stamp.
    #[cold]
    fn first_of(&self, index: usize) -> Option<Stamped<&T>> {
        let stamp = *self.stamps.get(index)?;
        self.message(self.stamps.partition_point(|&other| other < stamp))
    }

    fn message(&self, index: usize) -> Option<Stamped<&T>> {
        let stamp = *self.stamps.get(index)?;
        Some(Stamped::new(stamp.into(), &self.values[index]))
    }
}

/// Sorted by stamp; equal ones stay in order of arrival.
impl<T> FromIterator<(Stamp, T)> for Track<T> {
    fn from_iter<I: IntoIterator<Item = (Stamp, T)>>(messages: I) -> Self {
        let mut messages: Vec<_> = messages.into_iter().collect();
        messages.sort_by_key(|(stamp, _)| *stamp);
        let (stamps, values) = messages
            .into_iter()
            .map(|(stamp, value)| (stamp.nanos(), value))
            .unzip();
        Track { stamps, values }
    }
}

impl<'a, T> Cursor<'a, T> {
    /// The match of this track for the instant `t`, by a rule.
    #[inline]
    pub fn pick(&mut self, t: Stamp, rule: Rule) -> Match<&'a T> {
        if rule.pick() != Pick::Nearest {
            return self.pick_side(t, rule);
        }
        rule.of_nearest(t.nanos(), self.nearest(t))
    }

    fn pick_side(&mut self, t: Stamp, rule: Rule) -> Match<&'a T> {
        let (track, stamps) = (self.track, &self.track.stamps);
        self.move_to(t.nanos());
        let mut split = self.place;
        if rule.pick().is_split_after_equal() {
            split += stamps[split..]
                .iter()
                .take_while(|&&stamp| stamp == t.nanos())
                .count();
        }
        let before = split.checked_sub(1);
        let stamp_before = before.map(|index| stamps[index]);
        let take = |side| match side {
            Side::Before => track.message(before?),
            Side::After => track.message(split),
        };
        let stamp_after = stamps.get(split).copied();
        rule.decide(t.nanos(), stamp_before, stamp_after)
            .into_match(take)
    }

    /// The message nearest to `t`; the earlier of two that are equally far, the first to arrive of equal ones.
    #[inline]
    pub fn nearest(&mut self, t: Stamp) -> Option<Stamped<&'a T>> {
        let (t, low) = (t.nanos(), (self.place + self.stride).wrapping_sub(2));
        // Usually it is about as far as last time; the error is unpredictable.
        if let Some(four) = self.track.stamps.get(low..).and_then(<[i64]>::first_chunk)
            && let &[a, b, c, d] = four
            && a < t
            && t <= d
        {
            let before = usize::from(b < t) + usize::from(c < t);
            let to_before = t.wrapping_sub(four[before]) as u64;
            let is_after = (four[before + 1].wrapping_sub(t) as u64) < to_before;
            let nearest = before + usize::from(is_after);
            self.stride = (low + before + 1).saturating_sub(self.place);
            self.place = low + before + 1;
            let place = low + nearest;
            if place > 0 && self.track.stamps[place - 1] == four[nearest] {
                return self.track.first_of(place);
            }
            let value = self.track.values.get(place)?;
            return Some(Stamped::new(four[nearest].into(), value));
        }
        self.nearest_afar(t)
    }

    #[cold]
    fn nearest_afar(&mut self, t: i64) -> Option<Stamped<&'a T>> {
        self.move_to(t);
        let stamps = self.track.stamps.as_slice();
        let last = stamps.len().checked_sub(1)?;
        let before = self.place.saturating_sub(1);
        // At the ends both are the same message, which is not nearer than itself.
        let after = self.place.min(last);
        let is_after = stamps[after].abs_diff(t) < stamps[before].abs_diff(t);
        self.track.first_of(if is_after { after } else { before })
    }

    fn move_to(&mut self, t: i64) {
        let stamps = self.track.stamps.as_slice();
        let old = self.place;
        self.place = count_below(stamps, t, old + self.stride);
        self.stride = self.place.saturating_sub(old);
    }
}
