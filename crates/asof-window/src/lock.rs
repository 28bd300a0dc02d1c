//! The lock of a window.
//!
//! It is held for a search and a handle: some tens of nanoseconds. A lock that can put threads to sleep would take a
//! third of that, since releasing it needs an atomic exchange. This one is released by a plain store.

#[cfg(not(loom))]
pub(crate) use patient::{Guard, Lock};

#[cfg(loom)]
pub(crate) use modelled::{Guard, Lock};

#[cfg(not(loom))]
mod patient;

/// In a loom model the lock is a mutex: a spin loop has no end to explore.
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
