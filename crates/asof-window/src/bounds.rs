//! How much a window keeps.

use std::time::Duration;

/// How much a [`Window`](crate::Window) keeps: by count, by age, by bytes, in any combination.
///
/// The tightest bound applies; the message with the smallest stamp is dropped first.
///
/// ```
/// use asof_window::Bounds;
/// use std::time::Duration;
///
/// let bounds = Bounds::count(500).and_age(Duration::from_secs(2)).and_bytes(64 << 20);
/// assert_eq!(bounds.max_count(), Some(500));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub(crate) count: usize,
    pub(crate) age: u64,
    pub(crate) bytes: u64,
    pub(crate) jump: u64,
}

const NONE: Bounds = Bounds {
    count: usize::MAX,
    age: u64::MAX,
    bytes: u64::MAX,
    jump: u64::MAX,
};

/// What a window that is bounded by age alone keeps while stamps stand still.
const AGE_COUNT: usize = 1 << 20;
const AGE_BYTES: u64 = 1 << 30;

impl Bounds {
    /// At most this many messages. Zero keeps nothing.
    pub const fn count(count: usize) -> Self {
        Bounds { count, ..NONE }
    }

    /// No message older than the newest by more than this.
    ///
    /// Stamps may stand still, and age alone would then bound nothing: without a bound on count or bytes, at most 1,048,576
    /// messages and 1 GiB are kept too. What that drops is logged once and counted
    /// ([`WindowStats::crowded_out`](crate::WindowStats::crowded_out)).
    pub fn age(age: Duration) -> Self {
        NONE.and_age(age)
    }

    /// At most this many bytes, as the window weighs its messages.
    pub const fn bytes(bytes: u64) -> Self {
        Bounds { bytes, ..NONE }
    }

    /// The same, and at most this many messages.
    #[must_use]
    pub const fn and_count(self, count: usize) -> Self {
        Bounds { count, ..self }
    }

    /// The same, and none older than the newest by more than this.
    #[must_use]
    pub fn and_age(self, age: Duration) -> Self {
        Bounds {
            age: nanos(age),
            ..self
        }
    }

    /// The same, and at most this many bytes.
    #[must_use]
    pub const fn and_bytes(self, bytes: u64) -> Self {
        Bounds { bytes, ..self }
    }

    /// The same, but start over when a message is older than the newest by more than this.
    ///
    /// For clocks that go back: a restarted simulation, a recording played in a loop. Without it, messages after the jump
    /// are refused as too late until there are as many in a row as the window holds, and at least ten: see
    /// [`StampOptions`](crate::StampOptions).
    #[must_use]
    pub fn and_restart_after(self, jump: Duration) -> Self {
        Bounds {
            jump: nanos(jump),
            ..self
        }
    }

    /// The same, with the bounds on count and bytes of one on age alone.
    #[must_use]
    pub(crate) fn closed(self) -> Self {
        if self.is_age_alone() {
            self.and_count(AGE_COUNT).and_bytes(AGE_BYTES)
        } else {
            self
        }
    }

    /// Whether nothing but age bounds it, as long as stamps go on.
    pub(crate) fn is_age_alone(&self) -> bool {
        self.age != u64::MAX && self.count == usize::MAX && self.bytes == u64::MAX
    }

    /// How far back the clock may go before the window starts over, if set.
    pub const fn restart_after(&self) -> Option<Duration> {
        duration(self.jump)
    }

    /// The bound on messages, if there is one.
    pub const fn max_count(&self) -> Option<usize> {
        if self.count == usize::MAX {
            None
        } else {
            Some(self.count)
        }
    }

    /// The bound on age, if there is one.
    pub const fn max_age(&self) -> Option<Duration> {
        duration(self.age)
    }

    /// The bound on bytes, if there is one.
    pub const fn max_bytes(&self) -> Option<u64> {
        if self.bytes == u64::MAX {
            None
        } else {
            Some(self.bytes)
        }
    }
}

/// `nanos` as a duration, if it is a bound.
const fn duration(nanos: u64) -> Option<Duration> {
    if nanos == u64::MAX {
        None
    } else {
        Some(Duration::from_nanos(nanos))
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
