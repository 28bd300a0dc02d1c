//! The atomics of the protocols: the processor's, or loom's in a model.

#[cfg(not(loom))]
mod real {
    pub(crate) use core::sync::atomic::{Ordering, fence};

    #[cfg(not(target_has_atomic = "64"))]
    pub(crate) use core::sync::atomic::AtomicU32 as AtomicWord;
    #[cfg(target_has_atomic = "64")]
    pub(crate) use core::sync::atomic::AtomicU64 as AtomicWord;

    pub(crate) use AtomicWord as AtomicMark;

    /// A cell whose exclusive use a protocol passes from one end to the other.
    #[repr(transparent)]
    pub(crate) struct SharedCell<T>(core::cell::UnsafeCell<T>);

    /// A pointer for reading a [`SharedCell`]; nothing may write to the cell while it is alive.
    pub(crate) struct ConstPtr<T>(*const T);
    /// A pointer for changing a [`SharedCell`]; nothing else may access the cell while it is alive.
    pub(crate) struct MutPtr<T>(*mut T);

    impl<T> SharedCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            SharedCell(core::cell::UnsafeCell::new(value))
        }
        #[inline(always)]
        pub(crate) fn get(&self) -> ConstPtr<T> {
            ConstPtr(self.0.get())
        }
        #[inline(always)]
        pub(crate) fn get_mut(&self) -> MutPtr<T> {
            MutPtr(self.0.get())
        }
        /// The address, only for cache hints.
        #[inline(always)]
        pub(crate) fn address(&self) -> *const u8 {
            self.0.get().cast()
        }
    }

    impl<T> ConstPtr<T> {
        /// # Safety
        /// The protocol has given this end the cell for reading.
        #[inline(always)]
        pub(crate) unsafe fn deref(&self) -> &T {
            // SAFETY: the cell is alive as long as the end that made this pointer, and not written, by the caller's
            // contract.
            unsafe { &*self.0 }
        }
    }

    impl<T> MutPtr<T> {
        /// # Safety
        /// The protocol has given this end exclusive use of the cell.
        #[inline(always)]
        #[allow(clippy::mut_from_ref)] // as loom's
        pub(crate) unsafe fn deref(&self) -> &mut T {
            // SAFETY: the cell is alive as long as the end that made this pointer, and exclusively ours, by the
            // caller's contract.
            unsafe { &mut *self.0 }
        }

        /// # Safety
        /// As for `deref`; the result is shared, and may exist more than once.
        #[inline(always)]
        pub(crate) unsafe fn shared(&self) -> &T {
            // SAFETY: the cell is alive as long as the end that made this pointer, and exclusively ours, by the
            // caller's contract.
            unsafe { &*self.0 }
        }
    }

    /// A function that is `const` except under loom, whose atomics are created at run time.
    macro_rules! const_unless_loom {
        ($(#[$meta:meta])* $vis:vis fn $($rest:tt)*) => { $(#[$meta])* $vis const fn $($rest)* };
    }
    pub(crate) use const_unless_loom;
}

#[cfg(loom)]
mod real {
    pub(crate) use loom::cell::{ConstPtr, MutPtr};
    pub(crate) use loom::sync::atomic::{AtomicU64 as AtomicWord, Ordering, fence};

    /// A word on which loom tries every order of access.
    ///
    /// Loom remembers only the last access to each atomic, so a thread that loads a word before it stores to it hides
    /// that store from all threads that loaded it before. Touching a second word, by which all accesses conflict,
    /// brings those orders back. (Not for words that fences order: a touch could take the place of a fence.)
    pub(crate) struct AtomicMark {
        word: AtomicWord,
        touched: AtomicWord,
    }

    impl AtomicMark {
        pub(crate) fn new(value: u64) -> Self {
            AtomicMark {
                word: AtomicWord::new(value),
                touched: AtomicWord::new(0),
            }
        }
        fn touch(&self) -> &AtomicWord {
            self.touched.fetch_add(1, Ordering::Relaxed);
            &self.word
        }
        pub(crate) fn load(&self, order: Ordering) -> u64 {
            self.touch().load(order)
        }
        pub(crate) fn store(&self, value: u64, order: Ordering) {
            self.touch().store(value, order);
        }
        pub(crate) fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
            self.touch().fetch_sub(value, order)
        }
        pub(crate) fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
            self.touch().fetch_and(value, order)
        }
        pub(crate) fn compare_exchange(
            &self,
            current: u64,
            new: u64,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            self.touch()
                .compare_exchange(current, new, success, failure)
        }
    }

    pub(crate) struct SharedCell<T>(loom::cell::UnsafeCell<T>);

    /// What loom's mutable pointer lacks.
    pub(crate) trait SharedLook<T> {
        /// # Safety
        /// As for `deref`.
        unsafe fn shared(&self) -> &T;
    }

    impl<T> SharedLook<T> for MutPtr<T> {
        unsafe fn shared(&self) -> &T {
            // SAFETY: upheld by the caller.
            self.with(|place| unsafe { &*place })
        }
    }

    impl<T> SharedCell<T> {
        pub(crate) fn new(value: T) -> Self {
            SharedCell(loom::cell::UnsafeCell::new(value))
        }
        pub(crate) fn get(&self) -> ConstPtr<T> {
            self.0.get()
        }
        pub(crate) fn get_mut(&self) -> MutPtr<T> {
            self.0.get_mut()
        }
        pub(crate) fn address(&self) -> *const u8 {
            core::ptr::null()
        }
    }

    macro_rules! const_unless_loom {
        ($(#[$meta:meta])* $vis:vis fn $($rest:tt)*) => { $(#[$meta])* $vis fn $($rest)* };
    }
    pub(crate) use const_unless_loom;
}

pub(crate) use real::*;

/// A count that nothing depends on; the processor's atomic also in a model, which loom's would only make larger.
#[cfg(not(target_has_atomic = "64"))]
pub(crate) use core::sync::atomic::AtomicU32 as AtomicCounter;
#[cfg(target_has_atomic = "64")]
pub(crate) use core::sync::atomic::AtomicU64 as AtomicCounter;

// SAFETY: a SharedCell is only reached through the protocols, which give it to one end at a time (or only to readers).
unsafe impl<T: Send> Sync for SharedCell<T> {}

/// What the processor can load and store atomically: the size of counters and marks.
#[cfg(any(target_has_atomic = "64", loom))]
pub(crate) type Word = u64;
#[cfg(not(any(target_has_atomic = "64", loom)))]
pub(crate) type Word = u32;

/// A word on its own cache lines; two, since processors fetch lines in pairs.
#[repr(C, align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> core::ops::Deref for Padded<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}
