//! The as-of match: which message of a topic goes with which instant, and what lies between two of them.
//!
//! A [`Rule`] says which message is wanted: the last one, the next, the nearest, or a value between two. Everything else
//! brings messages to a rule. A [`Track`] holds those of a recording in order; an [`Align`] takes messages of several topics as
//! they arrive, late ones included; a [`Merge`] takes two sides in order of time, with keys. A [`Grid`] makes instants at a rate,
//! a [`Span`] is all messages around an instant. [`between`] is the only place that interpolates.
//!
//! Of several messages with one stamp, `last` and `before` take the last to arrive, all others the first; of two that are
//! equally near, the earlier one is taken.
//!
//! ```
//! use asof_align::{Rule, Track};
//!
//! let odom: Track<_> = [(10, 1.0), (20, 3.0)].map(|(t, x)| (t.into(), x)).into_iter().collect();
//! let mut cursor = odom.cursor();
//! let last = cursor.pick(14.into(), Rule::last());
//! assert_eq!(last.found().map(|message| *message.value), Some(1.0));
//! let between = cursor.pick(15.into(), Rule::interpolate());
//! assert_eq!(between.value(), Some(2.0));
//! ```

#![forbid(unsafe_code)]

pub mod between;
mod grid;
mod lane;
mod merge;
mod progress;
mod rule;
mod search;
mod stream;
mod topic;
mod track;

use std::str::FromStr;
use std::time::Duration;

use asof_core::Stamp;

pub use between::Interpolate;
pub use grid::{Grid, Span};
pub use lane::Lane;
pub use merge::{Merge, SpanMerge};
pub use progress::{Progress, Step};
pub use rule::{Decision, Match, Missing, Pick, Rule, Side, UnknownWord};
pub use search::{count_below, gallop};
pub use stream::{Align, AlignStats, AlignedRow};
pub use track::{Cursor, Track};

/// How late a message may be, by the time that is joined on, where nothing else is said.
pub const LATENESS: Duration = Duration::from_secs(1);

/// The time by which messages are aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum On {
    /// When they were measured, according to their own stamps.
    Stamp,
    /// When they were recorded.
    LogTime,
}

impl On {
    /// Both.
    pub const ALL: [On; 2] = [On::Stamp, On::LogTime];

    /// Its word, which is also the column that holds it.
    pub const fn word(self) -> &'static str {
        match self {
            On::Stamp => "stamp",
            On::LogTime => "log_time",
        }
    }

    /// Other spellings of its word.
    pub const fn other_words(self) -> &'static [&'static str] {
        match self {
            On::Stamp => &[],
            On::LogTime => &["log"],
        }
    }

    /// The time of a message, if it is set. A stamp of zero is that of a header that was never filled in; a log time of zero is
    /// a time.
    #[inline]
    pub fn known(self, time: Option<i64>) -> Option<i64> {
        time.filter(|&time| time != 0 || self == On::LogTime)
    }
}

impl FromStr for On {
    type Err = UnknownWord;

    /// By its word, or by another spelling of it.
    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        let mut all = On::ALL.into_iter();
        all.find(|on| on.word() == word || on.other_words().contains(&word))
            .ok_or_else(|| UnknownWord::new(word, &On::ALL.map(On::word)))
    }
}

/// A value with its stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamped<V> {
    /// The stamp.
    pub stamp: Stamp,
    /// The value.
    pub value: V,
}

impl<V> Stamped<V> {
    /// A value with its stamp.
    #[inline]
    pub fn new(stamp: Stamp, value: V) -> Self {
        Stamped { stamp, value }
    }
}

/// What happens to messages of one topic with the same stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Duplicates {
    /// All are kept, in order of arrival.
    #[default]
    KeepAll,
    /// The last to arrive replaces the one before it.
    LastWins,
    /// The first to arrive is kept; later ones are refused.
    FirstWins,
}

/// The README's examples run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
