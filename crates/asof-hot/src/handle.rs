//! How the ends of a structure share its memory.

use core::ops::Deref;

/// A handle to a structure that the ends share.
///
/// # Safety
/// Every call of `deref`, on every clone, returns the same address, valid for as long as any of them is alive.
pub unsafe trait Handle: Deref {
    /// Whether the opposite end is alive, if the handle has better information than the memory: between processes,
    /// since a killed one leaves no trace there.
    fn is_opposite_alive(&self) -> Option<bool> {
        None
    }
}

/// The default handle of the ends: an `Arc` if there is an allocator, else a `&'static`.
#[cfg(feature = "alloc")]
pub type Owned<S> = alloc::sync::Arc<S>;
/// The default handle of the ends: an `Arc` if there is an allocator, else a `&'static`.
#[cfg(not(feature = "alloc"))]
pub type Owned<S> = &'static S;

// SAFETY: a reference always returns itself.
unsafe impl<S> Handle for &S {}
// SAFETY: an Arc and its clones return the one allocation that they share, and keep it alive.
#[cfg(feature = "alloc")]
unsafe impl<S> Handle for alloc::sync::Arc<S> {}

/// A place for a structure in a `static`, for programs without an allocator.
///
/// ```
/// use asof_hot::{Latest, MonoStamp, StaticPlace};
///
/// static SPEED: StaticPlace<Latest<f64>> = StaticPlace::new(Latest::new());
///
/// let (mut writer, reader) = SPEED.take().expect("taken once").split();
/// writer.write(&0.4, MonoStamp(7));
/// assert_eq!(reader.read().unwrap().value, 0.4);
/// assert!(SPEED.take().is_none());
/// ```
pub struct StaticPlace<S> {
    is_taken: core::sync::atomic::AtomicBool,
    place: core::cell::UnsafeCell<S>,
}

// SAFETY: the structure is handed out once, to the first caller of `take`.
unsafe impl<S: Send> Sync for StaticPlace<S> {}

impl<S> StaticPlace<S> {
    /// Holds the structure until it is taken.
    pub const fn new(structure: S) -> Self {
        StaticPlace {
            is_taken: core::sync::atomic::AtomicBool::new(false),
            place: core::cell::UnsafeCell::new(structure),
        }
    }

    /// The structure, for the first caller only.
    #[allow(clippy::mut_from_ref)] // once
    pub fn take(&'static self) -> Option<&'static mut S> {
        if self
            .is_taken
            .swap(true, core::sync::atomic::Ordering::AcqRel)
        {
            return None;
        }
        // SAFETY: the swap lets one caller through, once, so this is the only reference there will ever be.
        Some(unsafe { &mut *self.place.get() })
    }
}
