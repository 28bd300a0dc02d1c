//! The bytes that unlikely data may take at once.

use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A bound on bytes that are alive at once, over all threads and readers.
///
/// What a reader loads ahead is bounded by itself, but readers may be many, and their callers keep messages. Data that
/// becomes far more than sensors' data does takes its bytes from here, so that small files cannot fill the memory. Data
/// that finds no room waits until other data is dropped, and is refused when nothing is dropped any more.
#[derive(Debug)]
pub(crate) struct Reserve {
    held: Mutex<Usage>,
    dropped: Condvar,
    /// How long to wait for other data to be dropped.
    patience: Duration,
}

#[derive(Debug, Default)]
struct Usage {
    bytes: u64,
    most: u64,
    /// Nothing was dropped since somebody waited in vain: the others need not wait as well.
    is_stuck: bool,
}

/// A share of a [`Reserve`], until it is dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    reserve: Arc<Reserve>,
    bytes: u64,
}

impl Reserve {
    pub fn new(patience: Duration) -> Arc<Self> {
        Arc::new(Reserve {
            held: Mutex::default(),
            dropped: Condvar::new(),
            patience,
        })
    }

    /// The one of this process.
    pub fn shared() -> &'static Arc<Self> {
        static SHARED: LazyLock<Arc<Reserve>> =
            LazyLock::new(|| Reserve::new(Duration::from_secs(1)));
        &SHARED
    }

    /// Takes bytes, of which all together may have `limit`. The error is how many the others hold.
    pub fn take(self: &Arc<Self>, bytes: u64, limit: u64) -> Result<Reserved, u64> {
        let held = self.lock();
        let is_full = |held: &mut Usage| held.bytes.saturating_add(bytes) > limit && !held.is_stuck;
        let (mut held, _) = self
            .dropped
            .wait_timeout_while(held, self.patience, is_full)
            .unwrap_or_else(PoisonError::into_inner);
        let total = held.bytes.saturating_add(bytes);
        if total > limit {
            held.is_stuck = true;
            return Err(held.bytes);
        }
        // Without a limit it may be less than was asked for: there are no more numbers.
        let bytes = total - held.bytes;
        held.bytes = total;
        held.most = held.most.max(total);
        Ok(Reserved {
            reserve: Arc::clone(self),
            bytes,
        })
    }

    /// The bytes that are held, and the most that ever were.
    pub fn held(&self) -> (u64, u64) {
        let held = self.lock();
        (held.bytes, held.most)
    }

    fn lock(&self) -> MutexGuard<'_, Usage> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reserved {
    /// Takes what is lacking for so many bytes.
    pub fn grow(&mut self, bytes: u64, limit: u64) -> Result<(), u64> {
        if bytes > self.bytes {
            let mut more = self.reserve.take(bytes - self.bytes, limit)?;
            self.bytes += std::mem::take(&mut more.bytes);
        }
        Ok(())
    }

    /// Gives back what is above so many bytes.
    pub fn shrink(&mut self, bytes: u64) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.bytes -= surplus;
        drop(Reserved {
            reserve: Arc::clone(&self.reserve),
            bytes: surplus,
        });
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut held = self.reserve.lock();
            held.bytes -= self.bytes;
            held.is_stuck = false;
            drop(held);
            self.reserve.dropped.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_never_exceeds_the_limit() {
        let reserve = Reserve::new(Duration::ZERO);
        let mut first = reserve.take(60, 100).expect("there is room");
        assert_eq!(reserve.take(60, 100).err(), Some(60));
        let second = reserve.take(40, 100).expect("there is room");
        assert_eq!(first.grow(61, 100), Err(100));
        first.shrink(10);
        assert_eq!(reserve.held(), (50, 100));
        first.grow(60, 100).expect("there is room again");
        drop((first, second));
        assert_eq!(reserve.held(), (0, 100));
        let unlimited = [60, u64::MAX].map(|bytes| reserve.take(bytes, u64::MAX));
        let [first, second] = unlimited.map(|taken| taken.expect("there is no limit"));
        drop(second);
        assert_eq!(reserve.held().0, 60);
        drop(first);
        assert_eq!(reserve.held().0, 0);
    }

    #[test]
    fn who_finds_no_room_waits_until_others_drop_theirs() {
        let reserve = Reserve::new(Duration::from_mins(1));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let held = reserve.take(40, 100).expect("waits");
                        std::thread::yield_now();
                        drop(held);
                    }
                });
            }
        });
        let (held, most) = reserve.held();
        assert_eq!(held, 0);
        assert!(most <= 100, "{most}");
    }
}
