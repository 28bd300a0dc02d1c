//! Stamps, and the metadata of a value that was read.

use core::time::Duration;

use crate::plain::{Plain, TypeName};

/// An instant in nanoseconds of a clock of the caller's choice, the same for writer and reader.
///
/// No structure reads a clock: "now" is always passed in, so that everything can be tested and replayed.
///
/// A stamp of `asof-core` is signed nanoseconds since 1970: [`MonoStamp::from_nanos`] and [`MonoStamp::nanos`] convert
/// at no cost, `MonoStamp::from_nanos(message.stamp.nanos())` and
/// `asof_core::MonoStamp::from_nanos(sample.stamp.nanos())`. For comparison with such stamps use
/// [`MonoStamp::now_since_1970`], since [`MonoStamp::now`] counts from boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct MonoStamp(pub u64);

impl MonoStamp {
    /// The time on this machine's monotonic clock, which all of its processes share.
    #[cfg(all(feature = "std", unix))]
    pub fn now() -> Self {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the pointer is to a timespec that outlives the call, and the clock exists on every unix.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        #[allow(clippy::unnecessary_cast)] // 32 bits wide on some targets
        MonoStamp(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    /// The wall clock of this machine, since 1970: what recordings and messages are stamped with. It jumps when it is
    /// set; use [`now`](Self::now) for timeouts and ages.
    #[cfg(feature = "std")]
    pub fn now_since_1970() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        MonoStamp(nanos(since.unwrap_or_default()))
    }

    /// From signed nanoseconds; negative times become zero.
    pub const fn from_nanos(nanos: i64) -> Self {
        MonoStamp(if nanos < 0 { 0 } else { nanos as u64 })
    }

    /// As signed nanoseconds; saturates at 292 years.
    pub const fn nanos(self) -> i64 {
        if self.0 > i64::MAX as u64 {
            i64::MAX
        } else {
            self.0 as i64
        }
    }

    /// How long before `now` this was; zero if it is in the future.
    pub const fn age(self, now: MonoStamp) -> Duration {
        Duration::from_nanos(now.0.saturating_sub(self.0))
    }

    /// Whether this is at most `span` from `now`, before or after. [`age`](Self::age) does not show that: by age, a
    /// stamp in the future is always new.
    pub const fn is_fresh(self, now: MonoStamp, span: Duration) -> bool {
        self.is_near(now, nanos(span))
    }

    pub(crate) const fn is_near(self, now: MonoStamp, nanos: u64) -> bool {
        self.0.abs_diff(now.0) <= nanos
    }

    /// This instant, `span` later; saturates.
    #[must_use]
    pub const fn after(self, span: Duration) -> MonoStamp {
        MonoStamp(self.0.saturating_add(nanos(span)))
    }
}

/// A duration in nanoseconds; saturates at 64 bits (584 years).
pub(crate) const fn nanos(span: Duration) -> u64 {
    let nanos = span.as_nanos();
    if nanos > u64::MAX as u128 {
        u64::MAX
    } else {
        nanos as u64
    }
}

// SAFETY: a transparent u64.
unsafe impl Plain for MonoStamp {
    const NAME: TypeName = TypeName::new("MonoStamp");
}

/// Which write a value came from, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The number of this write, counted from 1.
    pub generation: u64,
    /// The writer's stamp.
    pub stamp: MonoStamp,
}

impl Meta {
    /// How old the value is; zero if its stamp is after `now`.
    pub const fn age(&self, now: MonoStamp) -> Duration {
        self.stamp.age(now)
    }

    /// Whether the value's stamp is at most `span` from `now`, before or after.
    pub const fn is_fresh(&self, now: MonoStamp, span: Duration) -> bool {
        self.stamp.is_fresh(now, span)
    }

    /// How many writes between `generation`, which was seen before, and this one were missed.
    pub const fn missed_since(&self, generation: u64) -> u64 {
        self.generation.saturating_sub(generation).saturating_sub(1)
    }
}

/// A value with its [`Meta`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading<T> {
    /// The value.
    pub value: T,
    /// The number of this write, counted from 1.
    pub generation: u64,
    /// The writer's stamp.
    pub stamp: MonoStamp,
}

impl<T> Reading<T> {
    /// A value that was copied out, and what was written with it.
    #[inline(always)]
    pub(crate) const fn new(value: T, Meta { generation, stamp }: Meta) -> Self {
        Reading {
            value,
            generation,
            stamp,
        }
    }

    /// How old the value is; zero if its stamp is after `now`.
    pub const fn age(&self, now: MonoStamp) -> Duration {
        self.stamp.age(now)
    }

    /// Whether the value's stamp is at most `span` from `now`, before or after.
    pub const fn is_fresh(&self, now: MonoStamp, span: Duration) -> bool {
        self.stamp.is_fresh(now, span)
    }

    /// The sample without its value.
    pub const fn meta(&self) -> Meta {
        Meta {
            generation: self.generation,
            stamp: self.stamp,
        }
    }
}
