//! The robot's clock, for a recording by it.

use std::sync::atomic::{AtomicI64, Ordering};

use asof_core::Stamp;

/// A clock that leaps further than this between two messages was set: so much time has not passed.
const MAX_STEP_NANOS: i64 = 60_000_000_000;
/// It has not been received yet.
const UNKNOWN: i64 = i64::MIN;

/// The last time of a robot's clock, in nanoseconds, and how far it has advanced in total: it may be set back, or far
/// ahead.
pub(super) struct RobotClock {
    time: AtomicI64,
    advanced: AtomicI64,
}

impl RobotClock {
    pub fn new() -> Self {
        RobotClock {
            time: AtomicI64::new(UNKNOWN),
            advanced: AtomicI64::new(0),
        }
    }

    pub fn set(&self, time: Stamp) {
        let before = self.time.swap(time.nanos(), Ordering::AcqRel);
        if before != UNKNOWN {
            let passed = time.nanos().saturating_sub(before);
            if (0..=MAX_STEP_NANOS).contains(&passed) {
                self.advanced.fetch_add(passed, Ordering::AcqRel);
            }
        }
    }

    /// The last time, once there was one.
    pub fn time(&self) -> Option<Stamp> {
        let time = self.time.load(Ordering::Acquire);
        (time != UNKNOWN).then(|| time.into())
    }

    /// How far it has advanced in total.
    pub fn advanced(&self) -> Stamp {
        self.advanced.load(Ordering::Acquire).into()
    }
}
