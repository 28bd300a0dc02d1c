//! The byte budget and its reservations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A hard limit on bytes.
///
/// Invariant: `used` is the sum of all live [`Reservation`]s, and no reservation is ever granted
/// that would lift it above the limit.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: AtomicU64,
    used: AtomicU64,
    peak: AtomicU64,
}

/// Bytes taken from a [`Budget`], returned on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Budget {
            limit: AtomicU64::new(limit),
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
        })
    }

    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// A limit below the bytes in use grants nothing until enough have been returned.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether more is in use than the limit allows, after the limit was lowered.
    pub fn is_over(&self) -> bool {
        self.used() > self.limit()
    }

    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// An empty reservation that can grow.
    pub fn nothing(self: &Arc<Self>) -> Reservation {
        Reservation {
            budget: Arc::clone(self),
            bytes: 0,
        }
    }

    fn try_take(&self, bytes: u64) -> bool {
        let limit = self.limit();
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|&sum| sum <= limit)
            });
        if let Ok(before) = taken {
            self.peak.fetch_max(before + bytes, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Reservation {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reserves this many more bytes, or none.
    pub fn try_grow(&mut self, more: u64) -> bool {
        let granted = self.budget.try_take(more);
        if granted {
            self.bytes += more;
        }
        granted
    }

    /// Returns all but `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        if bytes < self.bytes {
            self.budget.give_back(self.bytes - bytes);
            self.bytes = bytes;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_granted_above_the_limit() {
        let budget = Budget::new(10);
        let mut first = budget.nothing();
        assert!(first.try_grow(10));
        assert!(!budget.nothing().try_grow(1));
        assert!(!first.try_grow(u64::MAX));
        first.shrink_to(4);
        assert!(budget.nothing().try_grow(6));
        assert_eq!(budget.peak(), 10);
    }

    #[test]
    fn a_panic_gives_the_bytes_back() {
        let budget = Budget::new(10);
        let inside = Arc::clone(&budget);
        let outcome = std::panic::catch_unwind(move || {
            let mut taken = inside.nothing();
            assert!(taken.try_grow(7));
            panic!("a consumer's own");
        });
        assert!(outcome.is_err());
        assert_eq!(budget.used(), 0);
    }
}
