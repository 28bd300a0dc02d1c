//! Alignment: for each message of one topic, the matching message of every other topic.

mod live;
mod progress;
mod stream;
mod topic;
mod track;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use asof_core::Stamp;

use super::Stamped;
use crate::query::part;
use crate::{Interpolate, Window};

pub use live::LiveCursor;
pub use stream::{Align, AlignStats, AlignedRow};
pub use track::{Cursor, Track};

/// Which message of a topic matches an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// The nearest; the earlier of two that are equally far.
    Nearest,
    /// The last at or before it: what was known by then.
    Last,
    /// The two on both sides of it.
    Interpolated,
}

/// How one topic is matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    pick: Pick,
    tolerance: u64,
    or_nearest: bool,
}

impl Rule {
    /// The nearest message.
    pub const fn nearest() -> Self {
        Rule {
            pick: Pick::Nearest,
            tolerance: u64::MAX,
            or_nearest: false,
        }
    }

    /// The last message at or before the anchor's.
    pub const fn last() -> Self {
        Rule {
            pick: Pick::Last,
            tolerance: u64::MAX,
            or_nearest: false,
        }
    }

    /// The value interpolated between the messages on both sides.
    pub const fn interpolated() -> Self {
        Rule {
            pick: Pick::Interpolated,
            tolerance: u64::MAX,
            or_nearest: false,
        }
    }

    /// The same, but the nearest message if one side has none, as at the ends of a stream.
    #[must_use]
    pub const fn or_nearest(self) -> Self {
        Rule {
            or_nearest: true,
            ..self
        }
    }

    /// The same, but without messages further away than this.
    #[must_use]
    pub fn within(self, tolerance: Duration) -> Self {
        Rule {
            tolerance: u64::try_from(tolerance.as_nanos()).unwrap_or(u64::MAX),
            ..self
        }
    }

    /// Which message is wanted.
    pub const fn pick(&self) -> Pick {
        self.pick
    }
}

/// A topic's match for an instant.
#[derive(Debug, Clone, PartialEq)]
pub enum Match<V> {
    /// This message.
    Found(Stamped<V>),
    /// These two, and the position of the instant between them.
    Between {
        /// The last message before it.
        before: Stamped<V>,
        /// The first message after it.
        after: Stamped<V>,
        /// The position between them, from 0 to 1.
        fraction: f64,
    },
    /// No match, and why.
    Missing(Missing),
}

/// Why a topic has no match for an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// No message at all.
    Nothing,
    /// Nothing at or before the instant; the first message is this many nanoseconds after it.
    NotYet(u64),
    /// Nothing at or after the instant; the last message is this many nanoseconds before it.
    NotAnyMore(u64),
    /// The matching message is this many nanoseconds away, which is more than the tolerance.
    TooFar(u64),
    /// The message is no longer held: the instant was queried too late.
    Forgotten,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |nanos: u64| nanos as f64 * 1e-9;
        match *self {
            Missing::Nothing => f.write_str("the topic has no message"),
            Missing::NotYet(nanos) => {
                write!(f, "the first message is {:.6} s later", seconds(nanos))
            }
            Missing::NotAnyMore(nanos) => {
                write!(f, "the last message is {:.6} s earlier", seconds(nanos))
            }
            Missing::TooFar(nanos) => write!(
                f,
                "the matching message is {:.6} s away, more than the tolerance",
                seconds(nanos)
            ),
            Missing::Forgotten => f.write_str("the message is no longer held"),
        }
    }
}

impl<V> Match<V> {
    /// The message, if there is exactly one.
    pub fn found(&self) -> Option<&Stamped<V>> {
        match self {
            Match::Found(message) => Some(message),
            _ => None,
        }
    }

    /// Why there is none.
    pub fn missing(&self) -> Option<Missing> {
        match self {
            Match::Missing(why) => Some(*why),
            _ => None,
        }
    }

    /// The value at the instant: the message itself, or interpolated between the two.
    pub fn value<T>(&self) -> Option<T>
    where
        V: AsRef<T>,
        T: Interpolate + Clone,
    {
        match self {
            Match::Found(message) => Some(message.value.as_ref().clone()),
            Match::Between {
                before,
                after,
                fraction,
            } => Some(
                before
                    .value
                    .as_ref()
                    .interpolate(after.value.as_ref(), *fraction),
            ),
            Match::Missing(_) => None,
        }
    }
}

impl<T> Window<T> {
    /// The match of this window for the instant `t`, by a rule. To align live topics, pick from each of
    /// them.
    ///
    /// ```
    /// use asof_window::sync::{Match, Rule};
    /// use asof_window::{Bounds, Window};
    /// use std::time::Duration;
    ///
    /// let imu = Window::new(Bounds::count(100));
    /// imu.insert(10.into(), 1.0);
    /// imu.insert(20.into(), 3.0);
    /// let camera = 15.into();
    /// assert_eq!(imu.pick(camera, Rule::interpolated()).value(), Some(2.0));
    /// let strict = Rule::nearest().within(Duration::from_nanos(4));
    /// assert_eq!(
    ///     imu.pick(camera, strict).missing().map(|why| why.to_string()).as_deref(),
    ///     Some("the matching message is 0.000000 s away, more than the tolerance"),
    /// );
    /// ```
    #[inline]
    pub fn pick(&self, t: Stamp, rule: Rule) -> Match<Arc<T>> {
        if rule.pick != Pick::Nearest {
            return self.pick_side(t, rule);
        }
        let state = self.lock();
        within(rule, t.nanos(), state.runs.nearest(t.nanos()))
    }

    fn pick_side(&self, t: Stamp, rule: Rule) -> Match<Arc<T>> {
        let state = self.lock();
        let runs = &state.runs;
        let nanos = t.nanos();
        let after = if rule.pick == Pick::Last {
            // The last of several that are exactly there.
            runs.first_after(nanos)
        } else {
            runs.first_from(nanos)
        };
        let before = runs.previous(after);
        let stamps = (before.and_then(|at| runs.stamp(at)), runs.stamp(after));
        let take = |side| {
            let at = match side {
                Side::Before => before,
                Side::After => Some(after),
            };
            let found = at.and_then(|at| runs.get(at));
            found.map(|(stamp, value)| Stamped::new(stamp.into(), Arc::clone(value)))
        };
        decide(rule, nanos, stamps.0, stamps.1).into_match(take)
    }
}

/// The nearest message, if it is near enough.
#[inline]
fn within<T>(rule: Rule, t: i64, nearest: Option<(i64, &Arc<T>)>) -> Match<Arc<T>> {
    let Some((stamp, value)) = nearest else {
        return Match::Missing(Missing::Nothing);
    };
    let distance = stamp.abs_diff(t);
    if distance <= rule.tolerance {
        Match::Found(Stamped::new(stamp.into(), Arc::clone(value)))
    } else {
        Match::Missing(Missing::TooFar(distance))
    }
}

#[derive(Clone, Copy)]
enum Side {
    Before,
    After,
}

/// Which of the two neighbours of an instant a rule picks.
enum Decision {
    Take(Side),
    Both(f64),
    Neither(Missing),
}

impl Decision {
    #[inline]
    fn into_match<V>(self, take: impl Fn(Side) -> Option<Stamped<V>>) -> Match<V> {
        let missing = Match::Missing(Missing::Nothing);
        match self {
            Decision::Neither(why) => Match::Missing(why),
            Decision::Take(side) => take(side).map_or(missing, Match::Found),
            Decision::Both(fraction) => match (take(Side::Before), take(Side::After)) {
                (Some(before), Some(after)) => Match::Between {
                    before,
                    after,
                    fraction,
                },
                _ => missing,
            },
        }
    }
}

/// `before` is the last stamp before `t` (at or before it for [`Pick::Last`]), `after` the first after that.
#[inline]
fn decide(rule: Rule, t: i64, before: Option<i64>, after: Option<i64>) -> Decision {
    match decide_strictly(rule, t, before, after) {
        Decision::Neither(_) if rule.or_nearest && rule.pick == Pick::Interpolated => {
            let nearest = Rule {
                pick: Pick::Nearest,
                ..rule
            };
            decide_strictly(nearest, t, before, after)
        }
        decision => decision,
    }
}

#[inline]
fn decide_strictly(rule: Rule, t: i64, before: Option<i64>, after: Option<i64>) -> Decision {
    let near = |side: Side, stamp: i64| {
        let distance = stamp.abs_diff(t);
        if distance <= rule.tolerance {
            Decision::Take(side)
        } else {
            Decision::Neither(Missing::TooFar(distance))
        }
    };
    match (rule.pick, before, after) {
        (_, None, None) => Decision::Neither(Missing::Nothing),
        (Pick::Last, Some(before), _) | (Pick::Nearest, Some(before), None) => {
            near(Side::Before, before)
        }
        (Pick::Last, None, Some(after)) => Decision::Neither(Missing::NotYet(after.abs_diff(t))),
        (Pick::Nearest, Some(before), Some(after)) => {
            if after.abs_diff(t) < before.abs_diff(t) {
                near(Side::After, after)
            } else {
                near(Side::Before, before)
            }
        }
        (Pick::Nearest, None, Some(after)) => near(Side::After, after),
        (Pick::Interpolated, _, Some(after)) if after == t => Decision::Take(Side::After),
        (Pick::Interpolated, Some(before), Some(after)) => {
            let farther = before.abs_diff(t).max(after.abs_diff(t));
            if farther <= rule.tolerance {
                Decision::Both(part(t, before, after))
            } else {
                Decision::Neither(Missing::TooFar(farther))
            }
        }
        (Pick::Interpolated, None, Some(after)) => {
            Decision::Neither(Missing::NotYet(after.abs_diff(t)))
        }
        (Pick::Interpolated, Some(before), None) => {
            Decision::Neither(Missing::NotAnyMore(before.abs_diff(t)))
        }
    }
}
