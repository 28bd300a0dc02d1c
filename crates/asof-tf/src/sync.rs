//! The atomics of the concurrent core: the standard ones, or loom's in a model.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence},
};

use std::sync::PoisonError;

/// Locks a mutex whose holder may have panicked: nothing that these mutexes guard is left inconsistent.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets other threads run between two tries.
#[inline]
pub(crate) fn pause(tries: u32) {
    #[cfg(loom)]
    {
        let _ = tries;
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    match tries {
        0..32 => std::hint::spin_loop(),
        32..1024 => std::thread::yield_now(),
        // A thread of real-time priority yields only to its equals: a holder of lower priority on the same core would
        // never run.
        _ => std::thread::sleep(std::time::Duration::from_micros(50)),
    }
}

/// A lock of one byte, for sections of some nanoseconds. What it guards is made of atomics.
///
/// Under contention a thread spins briefly, then yields, and finally sleeps, so that a descheduled holder gets to run,
/// whatever its priority.
#[cfg(not(loom))]
pub(crate) struct SpinLock(AtomicBool);

/// Proof that a [`SpinLock`] is held; releases it when dropped.
#[cfg(not(loom))]
pub(crate) struct SpinGuard<'a>(&'a SpinLock);

#[cfg(not(loom))]
impl SpinLock {
    pub(crate) fn new() -> Self {
        SpinLock(AtomicBool::new(false))
    }

    #[inline]
    pub(crate) fn hold(&self) -> SpinGuard<'_> {
        let mut tries = 0;
        while self.0.swap(true, Ordering::Acquire) {
            while self.0.load(Ordering::Relaxed) {
                pause(tries);
                tries = tries.saturating_add(1);
            }
        }
        SpinGuard(self)
    }

    /// Whether it is held, or was a moment ago.
    pub(crate) fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The latch, if it is free.
    pub(crate) fn try_hold(&self) -> Option<SpinGuard<'_>> {
        // Lazily: creating and dropping a `SpinGuard` would release the latch of its holder.
        (!self.0.swap(true, Ordering::Acquire)).then(|| SpinGuard(self))
    }
}

#[cfg(not(loom))]
impl Drop for SpinGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

/// In a loom model the latch is a mutex: a spin loop has no end to explore.
#[cfg(loom)]
pub(crate) struct SpinLock(Mutex<()>);

#[cfg(loom)]
pub(crate) struct SpinGuard<'a>(#[allow(dead_code)] MutexGuard<'a, ()>);

#[cfg(loom)]
impl SpinLock {
    pub(crate) fn new() -> Self {
        SpinLock(Mutex::new(()))
    }

    pub(crate) fn hold(&self) -> SpinGuard<'_> {
        SpinGuard(locked(&self.0))
    }

    pub(crate) fn try_hold(&self) -> Option<SpinGuard<'_>> {
        self.0.try_lock().ok().map(SpinGuard)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::SpinLock;

    #[test]
    fn who_does_not_get_the_latch_leaves_it_to_its_holder() {
        let latch = SpinLock::new();
        let held = latch.hold();
        assert!(latch.try_hold().is_none());
        assert!(latch.try_hold().is_none(), "the first try freed it");
        drop(held);
        assert!(latch.try_hold().is_some());
        assert!(latch.try_hold().is_some(), "the last try kept it");
    }
}

/// Calls a waker, which may run a user's code. Its panic is reported by the panic hook and goes no further: other wakers
/// wait behind it, and the thread is that of a writer or the timer of the process.
#[cfg(not(loom))]
pub(crate) fn wake(waker: std::task::Waker) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
}
