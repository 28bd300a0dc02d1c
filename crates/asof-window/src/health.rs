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
    ///
    /// Three in a row are a clock that was set forward, or a stream that begins. If the stream nevertheless continues where
    /// it was before them, the window starts over after ten messages. It does so too where the clock was set back by more
    /// than this: after as many messages in a row as it holds, and at least ten. Those before are refused, or kept as late.
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

/// After this many stamps in a row that are far ahead, the clock was set forward.
const MAX_DOUBTED: usize = 3;

/// At least this many stamps in a row that are far behind are a clock that was set back.
const MIN_BEHIND: usize = 10;

/// The newest stamps, while they are far ahead of all others and nothing has confirmed them.
#[derive(Debug, Clone, Copy)]
struct Leap {
    /// The newest of them.
    at: i64,
    /// How many they are.
    messages: usize,
    /// The newest stamp before it, or the first after it where there was none.
    trusted: Option<i64>,
}

/// Stamps in a row that are far behind the newest, each near the one before it.
#[derive(Debug, Clone, Copy)]
struct Row {
    first: i64,
    last: i64,
    messages: usize,
    /// How many messages were held before it, and how many had come in order.
    held: usize,
    in_order: u64,
}

/// A window's state of the stamps of its stream.
#[derive(Debug)]
pub(crate) struct Health {
    pub(crate) options: StampOptions,
    /// Stamps that are this far ahead are checked: all of them while one is on probation.
    pub(crate) calm: u64,
    limit: u64,
    leap: Option<Leap>,
    /// Where the stream was before a leap that was believed.
    departure: Option<i64>,
    behind: Option<Row>,
}

impl Health {
    pub(crate) fn new(options: StampOptions, bounds: &Bounds) -> Self {
        let limit = options.limit(bounds);
        Health {
            options,
            calm: limit.saturating_add(1),
            limit,
            leap: None,
            departure: None,
            behind: None,
        }
    }

    /// Records the very first stamp: nothing confirms it yet.
    #[cold]
    pub(crate) fn begin(&mut self, stamp: i64) {
        (self.departure, self.behind) = (None, None);
        self.set(Some(Leap {
            at: stamp,
            messages: 1,
            trusted: None,
        }));
    }

    /// Records a stamp after the newest one, if it is far ahead or another is on probation.
    #[cold]
    pub(crate) fn go_ahead(&mut self, stamp: i64, newest: i64) {
        if let Some(leap) = &mut self.leap
            && leap.trusted.is_some()
        {
            leap.at = stamp;
            leap.messages += 1;
            if leap.messages >= MAX_DOUBTED {
                self.departure = leap.trusted;
                self.set(None);
            }
            return;
        }
        let is_leap = stamp.abs_diff(newest) > self.limit;
        if let Some(first) = self.leap.as_mut().filter(|_| !is_leap) {
            // The very first stamps: nothing is known of the stream yet.
            first.at = stamp;
            first.messages += 1;
            if first.messages >= MAX_DOUBTED {
                self.set(None);
            }
            return;
        }
        // Zero is not a real time.
        let trusted = Some(newest).filter(|newest| *newest != 0);
        self.set(is_leap.then_some(Leap {
            at: stamp,
            messages: 1,
            trusted,
        }));
    }

    /// Whether a stamp is so far behind the newest as none that is only late; one that is not ends a row of such.
    #[inline]
    pub(crate) fn is_far_behind(&mut self, stamp: i64, newest: i64) -> bool {
        let is_far = newest.abs_diff(stamp) > self.limit;
        if !is_far {
            self.behind = None;
        }
        is_far
    }

    /// Whether a stamp that is far behind shows that the clock was set back: it is the last of a row that is longer than
    /// what the window holds, or that continues where the stream was before a leap.
    #[cold]
    pub(crate) fn is_set_back(
        &mut self,
        stamp: i64,
        newest: i64,
        held: usize,
        in_order: u64,
    ) -> bool {
        // Zero is not a real time.
        if stamp == 0 {
            return false;
        }
        let begun = Row {
            first: stamp,
            last: stamp,
            messages: 0,
            held,
            in_order,
        };
        let goes_with =
            |row: &Row| row.in_order == in_order && row.last.abs_diff(stamp) <= self.limit;
        let row = self.behind.filter(goes_with).unwrap_or(begun);
        let row = Row {
            last: stamp,
            messages: row.messages + 1,
            ..row
        };
        self.behind = Some(row);
        let returns = |trusted| goes_on(stamp, trusted, newest);
        let needed = match self.departure {
            Some(trusted) if returns(trusted) => MIN_BEHIND,
            _ => row.held.max(MIN_BEHIND),
        };
        row.messages >= needed && stamp > row.first
    }

    /// The newest stamp that is not on probation: what is older than the age before it is evicted.
    #[inline]
    pub(crate) fn trusted(&self, newest: i64) -> i64 {
        match self.leap {
            Some(leap) if leap.at == newest => leap.trusted.unwrap_or(newest),
            _ => newest,
        }
    }

    /// How many of the newest stamps were wrong, as shown by a stamp before them.
    #[inline]
    pub(crate) fn denied(&mut self, stamp: i64, newest: i64) -> usize {
        if self.leap.is_none() {
            return 0;
        }
        self.denied_leap(stamp, newest)
    }

    #[cold]
    fn denied_leap(&mut self, stamp: i64, newest: i64) -> usize {
        let Some(leap) = &mut self.leap else {
            return 0;
        };
        if leap.at != newest || stamp == 0 {
            return 0;
        }
        if newest.abs_diff(stamp) <= self.limit {
            self.set(None);
            return 0;
        }
        let Some(trusted) = leap.trusted else {
            leap.trusted = Some(stamp);
            return 0;
        };
        if !goes_on(stamp, trusted, newest) {
            return 0;
        }
        let messages = leap.messages;
        self.set(None);
        messages
    }

    fn set(&mut self, leap: Option<Leap>) {
        self.leap = leap;
        self.calm = if leap.is_some() {
            0
        } else {
            self.limit.saturating_add(1)
        };
    }
}

/// Whether a stamp continues where the stream was before its leap, having moved by a small part of it.
pub(crate) fn goes_on(stamp: i64, trusted: i64, leap: i64) -> bool {
    stamp >= trusted && stamp.abs_diff(trusted) <= leap.abs_diff(trusted) / CONTINUES_WITHIN
}
