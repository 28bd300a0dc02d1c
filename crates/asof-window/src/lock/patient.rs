//! The lock as built without loom.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use spin::RelaxStrategy;
use spin::mutex::{SpinMutex, SpinMutexGuard};

pub(crate) type Lock<T> = SpinMutex<T, Patient>;
pub(crate) type Guard<'a, T> = SpinMutexGuard<'a, T, Patient>;

/// How a thread waits for the lock: it spins, then yields, then sleeps.
///
/// Sleeping is for a holder that was preempted, and for threads of real-time priority: if they spun or yielded
/// forever, a holder of lower priority on the same core could never release the lock.
pub(crate) struct Patient;

/// Rounds of spinning before yielding: about the longest time that the lock is held.
const SPINS: u32 = 64;
/// Yields before the thread sleeps.
const YIELDS: u32 = 16;
const SLEEP: Duration = Duration::from_micros(50);

thread_local! {
    static ROUNDS: Cell<u32> = const { Cell::new(0) };
}

impl RelaxStrategy for Patient {
    fn relax() {
        let round = ROUNDS.get().wrapping_add(1);
        ROUNDS.set(round);
        if !round.is_multiple_of(SPINS) {
            std::hint::spin_loop();
        } else if !round.is_multiple_of(SPINS * YIELDS) {
            thread::yield_now();
        } else {
            thread::sleep(SLEEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_threads_take_turns_even_when_the_holder_sleeps() {
        let lock: Lock<u64> = Lock::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for turn in 0..500 {
                        let mut count = lock.lock();
                        *count += 1;
                        if turn % 100 == 0 {
                            thread::sleep(Duration::from_millis(1));
                        }
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 2_000);
    }

    #[test]
    fn a_panic_under_the_lock_gives_it_back() {
        let lock: Lock<u64> = Lock::new(0);
        let under = std::panic::AssertUnwindSafe(|| {
            let _held = lock.lock();
            panic!("under the lock");
        });
        assert!(std::panic::catch_unwind(under).is_err());
        assert!(lock.try_lock().is_some());
    }
}
