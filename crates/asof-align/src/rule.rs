//! Which message of a topic goes with an instant.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::between::part;
use crate::{Interpolate, Stamped};

/// Which message of a topic matches an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pick {
    /// The nearest; the earlier of two that are equally far.
    Nearest,
    /// The last at or before it: what was known by then.
    Last,
    /// The last before it.
    Before,
    /// The first at or after it.
    Next,
    /// The first after it.
    After,
    /// The two on both sides of it.
    Interpolate,
}

/// A word that says neither which message, nor which time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{word}' is not one of {known}")]
pub struct UnknownWord {
    word: String,
    known: String,
}

impl UnknownWord {
    pub(crate) fn new(word: &str, known: &[&str]) -> Self {
        UnknownWord {
            word: word.to_owned(),
            known: known.join(", "),
        }
    }
}

impl Pick {
    /// All of them.
    pub const ALL: [Pick; 6] = [
        Pick::Nearest,
        Pick::Last,
        Pick::Before,
        Pick::Next,
        Pick::After,
        Pick::Interpolate,
    ];

    /// Its word: on the command line, in TOML, in Python and in SQL.
    pub const fn word(self) -> &'static str {
        match self {
            Pick::Nearest => "nearest",
            Pick::Last => "last",
            Pick::Before => "before",
            Pick::Next => "next",
            Pick::After => "after",
            Pick::Interpolate => "interpolate",
        }
    }

    /// Other spellings of its word: its names in pandas and polars.
    pub const fn other_words(self) -> &'static [&'static str] {
        match self {
            Pick::Last => &["backward", "ffill"],
            Pick::Next => &["forward", "bfill"],
            Pick::Interpolate => &["interpolated", "linear"],
            Pick::Nearest | Pick::Before | Pick::After => &[],
        }
    }

    /// Whether a message exactly at the instant counts as before it.
    #[inline]
    pub const fn is_split_after_equal(self) -> bool {
        matches!(self, Pick::Last | Pick::After)
    }
}

impl fmt::Display for Pick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pick::Nearest => "nearest",
            Pick::Last => "last at or before",
            Pick::Before => "last before",
            Pick::Next => "first at or after",
            Pick::After => "first after",
            Pick::Interpolate => "between the last and the next",
        })
    }
}

impl FromStr for Pick {
    type Err = UnknownWord;

    /// By its word, or by another spelling of it.
    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        let mut all = Pick::ALL.into_iter();
        all.find(|pick| pick.word() == word || pick.other_words().contains(&word))
            .ok_or_else(|| UnknownWord::new(word, &Pick::ALL.map(Pick::word)))
    }
}

/// How one topic is matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rule {
    pick: Pick,
    tolerance: u64,
    or_nearest: bool,
}

impl From<Pick> for Rule {
    fn from(pick: Pick) -> Self {
        Rule::new(pick)
    }
}

impl Rule {
    /// At any distance.
    pub const fn new(pick: Pick) -> Self {
        Rule {
            pick,
            tolerance: u64::MAX,
            or_nearest: false,
        }
    }

    /// The nearest message.
    pub const fn nearest() -> Self {
        Rule::new(Pick::Nearest)
    }

    /// The last message at or before the anchor's.
    pub const fn last() -> Self {
        Rule::new(Pick::Last)
    }

    /// The last message before the anchor's.
    pub const fn before() -> Self {
        Rule::new(Pick::Before)
    }

    /// The first message at or after the anchor's.
    pub const fn next() -> Self {
        Rule::new(Pick::Next)
    }

    /// The first message after the anchor's.
    pub const fn after() -> Self {
        Rule::new(Pick::After)
    }

    /// The value interpolated between the messages on both sides. Nothing outside of the first and the last message.
    pub const fn interpolate() -> Self {
        Rule::new(Pick::Interpolate)
    }

    /// The same, but interpolation takes the nearest message if one side has none, as at the ends of a stream.
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

    /// The same for another message.
    #[must_use]
    pub const fn with_pick(self, pick: Pick) -> Self {
        Rule { pick, ..self }
    }

    /// Which message is wanted.
    #[inline]
    pub const fn pick(&self) -> Pick {
        self.pick
    }

    /// The largest distance, if there is one.
    pub fn tolerance(&self) -> Option<Duration> {
        (self.tolerance < u64::MAX).then(|| Duration::from_nanos(self.tolerance))
    }

    /// Whether a message this many nanoseconds away is near enough.
    #[inline]
    pub const fn allows(&self, distance: u64) -> bool {
        distance <= self.tolerance
    }

    /// Whether interpolation takes the nearest message at the ends.
    pub const fn has_nearest_at_ends(&self) -> bool {
        self.or_nearest
    }

    /// The match for the instant `t` where the nearest message is known.
    #[inline]
    pub fn of_nearest<V>(&self, t: i64, nearest: Option<Stamped<V>>) -> Match<V> {
        let Some(message) = nearest else {
            return Match::Missing(Missing::Nothing);
        };
        let distance = message.stamp.nanos().abs_diff(t);
        if self.allows(distance) {
            Match::Found(message)
        } else {
            Match::Missing(Missing::TooFar(distance))
        }
    }

    /// Which of the two neighbours of the instant `t` it picks. `before` is the stamp of the last message before `t`, `after` that of
    /// the first after it. One exactly at `t` is `before` where [`Pick::is_split_after_equal`], and `after` elsewhere.
    #[inline]
    pub fn decide(&self, t: i64, before: Option<i64>, after: Option<i64>) -> Decision {
        match self.decide_strictly(t, before, after) {
            Decision::Neither(_) if self.or_nearest && self.pick == Pick::Interpolate => {
                let nearest = self.with_pick(Pick::Nearest);
                nearest.decide_strictly(t, before, after)
            }
            decision => decision,
        }
    }

    #[inline]
    fn decide_strictly(&self, t: i64, before: Option<i64>, after: Option<i64>) -> Decision {
        let near = |side: Side, stamp: i64| {
            let distance = stamp.abs_diff(t);
            if distance <= self.tolerance {
                Decision::Take(side)
            } else {
                Decision::Neither(Missing::TooFar(distance))
            }
        };
        match (self.pick, before, after) {
            (_, None, None) => Decision::Neither(Missing::Nothing),
            (Pick::Last | Pick::Before, Some(before), _) | (Pick::Nearest, Some(before), None) => {
                near(Side::Before, before)
            }
            (Pick::Next | Pick::After, _, Some(after)) | (Pick::Nearest, None, Some(after)) => {
                near(Side::After, after)
            }
            (Pick::Nearest, Some(before), Some(after)) => {
                if after.abs_diff(t) < before.abs_diff(t) {
                    near(Side::After, after)
                } else {
                    near(Side::Before, before)
                }
            }
            (Pick::Interpolate, _, Some(after)) if after == t => Decision::Take(Side::After),
            (Pick::Interpolate, Some(before), Some(after)) => {
                let farther = before.abs_diff(t).max(after.abs_diff(t));
                if farther <= self.tolerance {
                    Decision::Both(part(before, after, t))
                } else {
                    Decision::Neither(Missing::TooFar(farther))
                }
            }
            (Pick::Last | Pick::Before | Pick::Interpolate, None, Some(after)) => {
                Decision::Neither(Missing::NotYet(after.abs_diff(t)))
            }
            (Pick::Next | Pick::After | Pick::Interpolate, Some(before), None) => {
                Decision::Neither(Missing::NotAnyMore(before.abs_diff(t)))
            }
        }
    }

    /// Whether no message that is still to come can change the match of `t`, given its neighbours as for
    /// [`decide`](Self::decide), where none is to come before `watermark`.
    pub fn is_settled(
        &self,
        t: i64,
        before: Option<i64>,
        after: Option<i64>,
        watermark: i64,
    ) -> bool {
        // What is still to come is at least this far after `t`, once it cannot be before it.
        let ahead = (watermark >= t).then(|| watermark.abs_diff(t));
        let is_too_far = ahead.is_some_and(|ahead| ahead > self.tolerance);
        match self.pick {
            Pick::Last => watermark > t,
            Pick::Before => watermark >= t,
            Pick::Next | Pick::After => {
                is_too_far || after.is_some_and(|after| after == t || watermark >= after)
            }
            Pick::Nearest => {
                let distances = [before, after].into_iter().flatten();
                let nearest = distances.map(|stamp| stamp.abs_diff(t)).min();
                nearest == Some(0)
                    || ahead.is_some_and(|ahead| {
                        nearest.is_some_and(|nearest| nearest <= ahead)
                            || (is_too_far
                                && nearest.is_none_or(|nearest| nearest > self.tolerance))
                    })
            }
            Pick::Interpolate => {
                after == Some(t)
                    || is_too_far
                    || ahead.is_some_and(|ahead| {
                        after.is_some_and(|after| watermark >= after)
                            || (ahead > 0
                                && !self.or_nearest
                                && before.is_some_and(|before| before.abs_diff(t) > self.tolerance))
                    })
            }
        }
    }
}

/// One of the two neighbours of an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The one before it.
    Before,
    /// The one after it.
    After,
}

/// Which of the two neighbours of an instant a rule picks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Decision {
    /// This one.
    Take(Side),
    /// Both, and the position of the instant between them.
    Both(f64),
    /// Neither, and why.
    Neither(Missing),
}

impl Decision {
    /// The match, from a function that looks up a neighbour.
    #[inline]
    pub fn into_match<V>(self, take: impl Fn(Side) -> Option<Stamped<V>>) -> Match<V> {
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

    /// The same of other values.
    #[inline]
    pub fn map<U>(self, mut value: impl FnMut(V) -> U) -> Match<U> {
        let mut of = |message: Stamped<V>| Stamped::new(message.stamp, value(message.value));
        match self {
            Match::Found(message) => Match::Found(of(message)),
            Match::Between {
                before,
                after,
                fraction,
            } => Match::Between {
                before: of(before),
                after: of(after),
                fraction,
            },
            Match::Missing(why) => Match::Missing(why),
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
        V: Borrow<T>,
        T: Interpolate + Clone,
    {
        match self {
            Match::Found(message) => Some(message.value.borrow().clone()),
            Match::Between {
                before,
                after,
                fraction,
            } => Some(
                before
                    .value
                    .borrow()
                    .interpolate(after.value.borrow(), *fraction),
            ),
            Match::Missing(_) => None,
        }
    }
}
