//! The lock of a window.
//!
//! What is done under it is a search and a handle: some tens of nanoseconds, of which a lock that can put threads to
//! sleep would be a third, since it takes an atomic exchange to give it back. This one is given back by a plain store.

#[cfg(not(loom))]
pub(crate) use patient::{Guard, Lock};

#[cfg(loom)]
pub(crate) use modelled::{Guard, Lock};

#[cfg(not(loom))]
mod patient;

/// In a model a mutex stands for the lock: a loop that spins has no end to explore.
#[cfg(loom)]
mod modelled {
    pub(crate) struct Lock<T>(loom::sync::Mutex<T>);
    pub(crate) type Guard<'a, T> = loom::sync::MutexGuard<'a, T>;

    impl<T> Lock<T> {
        pub(crate) fn new(value: T) -> Self {
            Lock(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> Guard<'_, T> {
            self.0.lock().expect("no model panics under the lock")
        }
    }
}
