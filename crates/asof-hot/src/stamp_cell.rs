//! A single time that one end writes and others read.

use crate::sync::Ordering;

/// One 64-bit atomic, if the processor has them.
#[cfg(any(target_has_atomic = "64", loom))]
#[cfg_attr(not(loom), repr(transparent))]
pub(crate) struct StampCell(crate::sync::AtomicWord);

#[cfg(any(target_has_atomic = "64", loom))]
impl StampCell {
    crate::sync::const_unless_loom! {
        pub(crate) fn new(nanos: u64) -> Self {
            StampCell(crate::sync::AtomicWord::new(nanos))
        }
    }
    #[inline(always)]
    pub(crate) fn store(&self, nanos: u64, order: Ordering) {
        self.0.store(nanos, order);
    }
    #[inline(always)]
    pub(crate) fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
}

/// Two halves under the protocol of the latest value, if it does not.
#[cfg(not(any(target_has_atomic = "64", loom)))]
pub(crate) struct StampCell {
    initial: u64,
    latest: crate::latest::Latest<u64, 4>,
}

#[cfg(not(any(target_has_atomic = "64", loom)))]
impl StampCell {
    pub(crate) const fn new(nanos: u64) -> Self {
        StampCell {
            initial: nanos,
            latest: crate::latest::Latest::new(),
        }
    }
    pub(crate) fn store(&self, nanos: u64, _order: Ordering) {
        use crate::latest::{Memory, publish};
        let last = self.latest.head().load(Ordering::Relaxed);
        let stamp = crate::stamp::MonoStamp(0);
        let source = (&raw const nanos).cast();
        // SAFETY: a stamp cell has one writer, its structure's writing end; the source is a u64.
        unsafe { publish(&self.latest, last, source, stamp, &mut crate::steps::Whole) };
    }
    pub(crate) fn load(&self, _order: Ordering) -> u64 {
        let mut nanos = self.initial;
        // SAFETY: there is room for a u64.
        unsafe { crate::latest::newest(&self.latest, (&raw mut nanos).cast()) };
        nanos
    }
}
