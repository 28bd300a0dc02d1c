//! Which stamps are trusted.

use std::time::Duration;

use crate::Bounds;
use crate::bounds::nanos;

/// How a [`Window`](crate::Window) judges the stamps of its messages, and a [`Recent`](crate::Recent) their log times.
///
/// [`Bounds::and_restart_after`] handles a clock that goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StampOptions {
    /// Whether messages with stamp zero, from a header that was not filled in, are refused. They are counted either
    /// way. Off by default, because the clock of a simulation starts at zero.
    pub refuse_zero: bool,
    /// A stamp that is ahead of all others by more than this is on probation: if the stream continues where it was, its
    /// message is dropped and counted; a [`Recent`](crate::Recent) keeps it and moves its log time. By default the
    /// bound on age, but at least a second; without one, an hour.
    pub max_ahead: Option<Duration>,
}

impl StampOptions {
    /// How far ahead a stamp may be without probation, in nanoseconds.
    pub(crate) fn limit(&self, bounds: &Bounds) -> u64 {
        match (self.max_ahead, bounds.max_age()) {
            (Some(ahead), _) => nanos(ahead),
            (None, Some(age)) => nanos(age).max(MIN_AHEAD_NANOS),
            (None, None) => DEFAULT_AHEAD_NANOS,
        }
    }
}

const MIN_AHEAD_NANOS: u64 = 1_000_000_000;
const DEFAULT_AHEAD_NANOS: u64 = 3600 * MIN_AHEAD_NANOS;
/// The stream continues where it was if it has moved by less than one part in this many of the leap.
const CONTINUES_WITHIN: u64 = 8;

/// The newest stamp, while it is far ahead of all others and nothing has confirmed it.
#[derive(Debug, Clone, Copy)]
struct Leap {
    at: i64,
    /// The newest stamp before it, or the first after it where there was none.
    trusted: Option<i64>,
}

/// A window's state of the stamps of its stream.
#[derive(Debug)]
pub(crate) struct Health {
    pub(crate) options: StampOptions,
    /// Stamps further ahead than this are checked: zero while one is on probation.
    pub(crate) calm: u64,
    limit: u64,
    leap: Option<Leap>,
}

impl Health {
    pub(crate) fn new(options: StampOptions, bounds: &Bounds) -> Self {
        let limit = options.limit(bounds);
        Health {
            options,
            calm: limit,
            limit,
            leap: None,
        }
    }

    /// Records the very first stamp: nothing confirms it yet.
    #[cold]
    pub(crate) fn begin(&mut self, stamp: i64) {
        self.set(Some(Leap {
            at: stamp,
            trusted: None,
        }));
    }

    /// Records a stamp after the newest one, if it is far ahead or another is on probation.
    #[cold]
    pub(crate) fn go_ahead(&mut self, stamp: i64, newest: i64) {
        let is_leap = stamp.abs_diff(newest) > self.limit;
        // Zero is not a real time.
        let trusted = Some(newest).filter(|newest| *newest != 0);
        self.set(is_leap.then_some(Leap { at: stamp, trusted }));
    }

    /// Whether a stamp before the newest one shows that the newest was wrong.
    pub(crate) fn denies_newest(&mut self, stamp: i64, newest: i64) -> bool {
        let Some(leap) = &mut self.leap else {
            return false;
        };
        if leap.at != newest || stamp == 0 {
            return false;
        }
        if newest.abs_diff(stamp) <= self.limit {
            self.set(None);
            return false;
        }
        let Some(trusted) = leap.trusted else {
            leap.trusted = Some(stamp);
            return false;
        };
        let has_gone_on = goes_on(stamp, trusted, newest);
        if has_gone_on {
            self.set(None);
        }
        has_gone_on
    }

    fn set(&mut self, leap: Option<Leap>) {
        self.leap = leap;
        self.calm = if leap.is_some() { 0 } else { self.limit };
    }
}

/// Whether a stamp continues where the stream was before its leap, having moved by a small part of it.
pub(crate) fn goes_on(stamp: i64, trusted: i64, leap: i64) -> bool {
    stamp >= trusted && stamp.abs_diff(trusted) <= leap.abs_diff(trusted) / CONTINUES_WITHIN
}
