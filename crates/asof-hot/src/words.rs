//! A value that may be read while it is written: possibly torn, but never undefined behaviour. A reader checks
//! afterwards.

use crate::plain::Plain;

/// Memory for a `T`, read and written in pieces with relaxed atomic accesses.
///
/// A read may return a mixture of values; the mark of the slot around it shows whether it is one value.
#[cfg(not(loom))]
#[repr(C, align(8))]
pub(crate) struct Words<T>(core::cell::UnsafeCell<core::mem::MaybeUninit<T>>);

// SAFETY: all access is atomic (or equivalent assembly), and T is plain bytes.
#[cfg(not(loom))]
unsafe impl<T: Plain> Sync for Words<T> {}

#[cfg(not(loom))]
impl<T: Plain> Words<T> {
    /// All zeros.
    pub(crate) const fn zeroed() -> Self {
        Words(core::cell::UnsafeCell::new(core::mem::MaybeUninit::zeroed()))
    }

    /// Copies the value in.
    ///
    /// # Safety
    /// `source` is valid for reading a T, and nothing else stores here.
    #[inline(always)]
    pub(crate) unsafe fn store(&self, source: *const T) {
        // SAFETY: our own memory holds a T at an alignment of 8; the source is valid by the caller's promise.
        unsafe { bytes::store(self.0.get().cast(), source.cast(), size_of::<T>()) }
    }

    /// Copies out whatever is there.
    ///
    /// # Safety
    /// `target` is valid for writing a T.
    #[inline(always)]
    pub(crate) unsafe fn load(&self, target: *mut T) {
        // SAFETY: our own memory holds a T at an alignment of 8; the target is valid by the caller's promise.
        unsafe { bytes::load(self.0.get().cast(), target.cast(), size_of::<T>()) }
    }
}

/// In a model, four of loom's words: a value there has at most 32 bytes, a multiple of eight.
#[cfg(loom)]
pub(crate) struct Words<T>(
    [loom::sync::atomic::AtomicU64; 4],
    core::marker::PhantomData<T>,
);

#[cfg(loom)]
impl<T: Plain> Words<T> {
    pub(crate) fn zeroed() -> Self {
        assert!(size_of::<T>() <= 32 && size_of::<T>() % 8 == 0);
        Words(
            core::array::from_fn(|_| loom::sync::atomic::AtomicU64::new(0)),
            core::marker::PhantomData,
        )
    }

    pub(crate) unsafe fn store(&self, source: *const T) {
        for (index, word) in self.0[..size_of::<T>() / 8].iter().enumerate() {
            // SAFETY: the source holds a T, of which this is one word.
            let value = unsafe { source.cast::<u64>().add(index).read_unaligned() };
            word.store(value, loom::sync::atomic::Ordering::Relaxed);
        }
    }

    pub(crate) unsafe fn load(&self, target: *mut T) {
        for (index, word) in self.0[..size_of::<T>() / 8].iter().enumerate() {
            let value = word.load(loom::sync::atomic::Ordering::Relaxed);
            // SAFETY: the target has room for a T, of which this is one word.
            unsafe { target.cast::<u64>().add(index).write_unaligned(value) };
        }
    }
}

/// The copies themselves, over raw addresses; also used where sizes are known only at run time.
#[cfg(not(loom))]
pub(crate) mod bytes {
    use core::sync::atomic::Ordering::Relaxed;
    use core::sync::atomic::{AtomicU8, AtomicU32};

    #[cfg(not(target_has_atomic = "64"))]
    use core::sync::atomic::AtomicU32 as Unit;
    #[cfg(target_has_atomic = "64")]
    use core::sync::atomic::AtomicU64 as Unit;
    #[cfg(target_has_atomic = "64")]
    type UnitValue = u64;
    #[cfg(not(target_has_atomic = "64"))]
    type UnitValue = u32;

    const UNIT: usize = size_of::<Unit>();

    /// Copies `size` bytes into shared memory, word by word: the caller has most likely just stored words, and wider
    /// loads of them would wait for those stores.
    ///
    /// # Safety
    /// Both are valid for `size` bytes, `shared` is aligned to 8, and nothing else stores there.
    #[inline(always)]
    pub(crate) unsafe fn store(shared: *mut u8, source: *const u8, size: usize) {
        let mut at = 0;
        while at + UNIT <= size {
            // SAFETY: within `size`; `shared + at` is aligned to the unit; other access to it is atomic too.
            unsafe {
                let value = source.add(at).cast::<UnitValue>().read_unaligned();
                Unit::from_ptr(shared.add(at).cast()).store(value, Relaxed);
            }
            at += UNIT;
        }
        if at + 4 <= size {
            // SAFETY: as above, with four bytes.
            unsafe {
                let value = source.add(at).cast::<u32>().read_unaligned();
                AtomicU32::from_ptr(shared.add(at).cast()).store(value, Relaxed);
            }
            at += 4;
        }
        while at < size {
            // SAFETY: as above, with one byte.
            unsafe { AtomicU8::from_ptr(shared.add(at)).store(source.add(at).read(), Relaxed) };
            at += 1;
        }
    }

    /// Copies `size` bytes out of shared memory that may be being written.
    ///
    /// # Safety
    /// Both are valid for `size` bytes, and `shared` is aligned to 8.
    #[inline(always)]
    pub(crate) unsafe fn load(shared: *mut u8, target: *mut u8, size: usize) {
        // SAFETY: upheld by the caller.
        let mut at = unsafe { load_wide(shared, target, size) };
        while at + UNIT <= size {
            // SAFETY: within `size`; `shared + at` is aligned to the unit; other access to it is atomic too.
            unsafe {
                let value: UnitValue = Unit::from_ptr(shared.add(at).cast()).load(Relaxed);
                target.add(at).cast::<UnitValue>().write_unaligned(value);
            }
            at += UNIT;
        }
        if at + 4 <= size {
            // SAFETY: as above, with four bytes.
            unsafe {
                let value = AtomicU32::from_ptr(shared.add(at).cast()).load(Relaxed);
                target.add(at).cast::<u32>().write_unaligned(value);
            }
            at += 4;
        }
        while at < size {
            // SAFETY: as above, with one byte.
            unsafe {
                target
                    .add(at)
                    .write(AtomicU8::from_ptr(shared.add(at)).load(Relaxed));
            };
            at += 1;
        }
    }

    /// Copies the part that 16-byte moves can, in assembly, which a compiler must not tear, repeat or move across a
    /// fence: to the memory model it is a sequence of relaxed byte loads. Returns how far it came.
    ///
    /// # Safety
    /// As for [`load`].
    #[cfg(all(target_arch = "x86_64", not(any(miri, feature = "word-copy"))))]
    #[inline(always)]
    #[allow(clippy::cast_ptr_alignment, clippy::semicolon_if_nothing_returned)] // the stores are unaligned ones
    unsafe fn load_wide(shared: *const u8, target: *mut u8, size: usize) -> usize {
        /// Loads units of 16 bytes from one address, which for small values saves as much as the loads cost.
        macro_rules! units {
            ($from:expr, $to:expr; $first:ident $(, $register:ident at $offset:literal)*) => {{
                let $first: __m128i;
                $(let $register: __m128i;)*
                asm!(
                    concat!("movups {", stringify!($first), "}, [{from}]"),
                    $(concat!("movups {", stringify!($register), "}, [{from} + ", $offset, "]"),)*
                    from = in(reg) $from,
                    $first = out(xmm_reg) $first,
                    $($register = out(xmm_reg) $register,)*
                    options(nostack, preserves_flags, readonly)
                );
                $to.cast::<__m128i>().write_unaligned($first);
                $($to.add($offset).cast::<__m128i>().write_unaligned($register);)*
            }};
        }
        use core::arch::{asm, x86_64::__m128i};

        let mut at = 0;
        while at + 192 <= size {
            // SAFETY: 192 bytes from `at` on are within `size`; SSE2 is part of x86-64.
            unsafe {
                let (from, to) = (shared.add(at), target.add(at));
                units!(from, to; a, b at 16, c at 32, d at 48, e at 64, f at 80, g at 96, h at 112, i at 128, j at 144, k at 160, l at 176);
            }
            at += 192;
        }
        // SAFETY: the complete units left from `at` on are within `size`.
        unsafe {
            let (from, to) = (shared.add(at), target.add(at));
            match (size - at) / 16 {
                1 => units!(from, to; a),
                2 => units!(from, to; a, b at 16),
                3 => units!(from, to; a, b at 16, c at 32),
                4 => units!(from, to; a, b at 16, c at 32, d at 48),
                5 => units!(from, to; a, b at 16, c at 32, d at 48, e at 64),
                6 => units!(from, to; a, b at 16, c at 32, d at 48, e at 64, f at 80),
                7 => units!(from, to; a, b at 16, c at 32, d at 48, e at 64, f at 80, g at 96),
                8 => {
                    units!(from, to; a, b at 16, c at 32, d at 48, e at 64, f at 80, g at 96, h at 112)
                }
                9 => {
                    units!(from, to; a, b at 16, c at 32, d at 48, e at 64, f at 80, g at 96, h at 112, i at 128)
                }
                10 => {
                    units!(from, to; a, b at 16, c at 32, d at 48, e at 64, f at 80, g at 96, h at 112, i at 128, j at 144)
                }
                11 => {
                    units!(from, to; a, b at 16, c at 32, d at 48, e at 64, f at 80, g at 96, h at 112, i at 128, j at 144, k at 160)
                }
                _ => {}
            }
        }
        size & !15
    }

    /// As for x86-64, with pairs of 16-byte registers.
    ///
    /// # Safety
    /// As for [`load`].
    #[cfg(all(target_arch = "aarch64", not(any(miri, feature = "word-copy"))))]
    #[inline(always)]
    #[allow(clippy::cast_ptr_alignment, clippy::semicolon_if_nothing_returned)] // the stores are unaligned ones
    unsafe fn load_wide(shared: *const u8, target: *mut u8, size: usize) -> usize {
        use core::arch::{aarch64::uint8x16_t, asm};
        let mut at = 0;
        while at + 32 <= size {
            let (a, b): (uint8x16_t, uint8x16_t);
            // SAFETY: 32 bytes from `at` on are within `size`; NEON is part of aarch64.
            unsafe {
                asm!(
                    "ldp {a:q}, {b:q}, [{from}]",
                    from = in(reg) shared.add(at), a = out(vreg) a, b = out(vreg) b,
                    options(nostack, preserves_flags, readonly)
                );
                let target = target.add(at).cast::<uint8x16_t>();
                target.write_unaligned(a);
                target.add(1).write_unaligned(b);
            }
            at += 32;
        }
        at
    }

    /// Copies nothing: the word copy does it all.
    ///
    /// # Safety
    /// As for [`load`].
    #[cfg(any(
        not(any(target_arch = "x86_64", target_arch = "aarch64")),
        any(miri, feature = "word-copy")
    ))]
    unsafe fn load_wide(_shared: *const u8, _target: *mut u8, _size: usize) -> usize {
        0
    }
}

/// Compares pairs of words of shared memory with what they were, by 16-byte loads, which this kind of processor does not
/// reorder, and of which it takes each word at once. Returns how many pairs it compared, and whether all were the same.
///
/// # Safety
/// Both are valid for so many pairs, aligned to 16; the shared words are written atomically, those of `kept` not at all.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, feature = "word-copy"))))]
#[inline(always)]
pub(crate) unsafe fn same_pairs(shared: *const u8, kept: *const u8, pairs: usize) -> (usize, bool) {
    use core::arch::asm;
    use core::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_cmpeq_epi32, _mm_load_si128, _mm_movemask_epi8, _mm_set1_epi32,
    };

    /// Loads pairs from one address and compares them.
    macro_rules! pairs {
        ($from:expr, $kept:expr, $same:ident; $($register:ident at $offset:literal),*) => {{
            $(let $register: __m128i;)*
            asm!(
                $(concat!("movdqa {", stringify!($register), "}, [{from} + ", $offset, "]"),)*
                from = in(reg) $from,
                $($register = out(xmm_reg) $register,)*
                options(nostack, preserves_flags, readonly)
            );
            $(
                let kept = _mm_load_si128($kept.add($offset).cast());
                $same = _mm_and_si128($same, _mm_cmpeq_epi32($register, kept));
            )*
        }};
    }

    let mut at = 0;
    // SAFETY: the pairs from `at` on are within `pairs`; SSE2 is part of x86-64.
    unsafe {
        let mut same = _mm_set1_epi32(-1);
        while at + 3 <= pairs {
            let (from, kept) = (shared.add(16 * at), kept.add(16 * at));
            pairs!(from, kept, same; a at 0, b at 16, c at 32);
            at += 3;
        }
        let (from, kept) = (shared.add(16 * at), kept.add(16 * at));
        match pairs - at {
            1 => pairs!(from, kept, same; a at 0),
            2 => pairs!(from, kept, same; a at 0, b at 16),
            _ => {}
        }
        (pairs, _mm_movemask_epi8(same) == 0xffff)
    }
}

/// Compares nothing: the caller does it all.
///
/// # Safety
/// None.
#[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, feature = "word-copy")))))]
#[inline(always)]
pub(crate) unsafe fn same_pairs(
    _shared: *const u8,
    _kept: *const u8,
    _pairs: usize,
) -> (usize, bool) {
    (0, true)
}

/// Prefetches cache lines for writing.
#[inline(always)]
pub(crate) fn fetch_for_writing(place: *const u8, size: usize) {
    let mut at = 0;
    while at < size {
        let line = place.wrapping_add(at);
        // SAFETY: a hint; it touches no memory that the program can see, whatever the address.
        #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
        unsafe {
            core::arch::asm!("prefetchw [{line}]", line = in(reg) line, options(nostack, preserves_flags, readonly));
        }
        // SAFETY: as above.
        #[cfg(all(target_arch = "aarch64", not(any(miri, loom))))]
        unsafe {
            core::arch::asm!("prfm pstl1keep, [{line}]", line = in(reg) line, options(nostack, preserves_flags, readonly));
        }
        let _ = line;
        at += 64;
    }
}

/// Prefetches cache lines for reading; only a few, or the hint costs more than it gains.
#[inline(always)]
pub(crate) fn fetch_for_reading(place: *const u8, size: usize) {
    let mut at = 0;
    while at < size && at < 256 {
        let line = place.wrapping_add(at);
        // SAFETY: a hint; it touches no memory that the program can see, whatever the address.
        #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
        unsafe {
            core::arch::asm!("prefetcht0 [{line}]", line = in(reg) line, options(nostack, preserves_flags, readonly));
        }
        // SAFETY: as above.
        #[cfg(all(target_arch = "aarch64", not(any(miri, loom))))]
        unsafe {
            core::arch::asm!("prfm pldl1keep, [{line}]", line = in(reg) line, options(nostack, preserves_flags, readonly));
        }
        let _ = line;
        at += 64;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn survives<const SIZE: usize>() {
        let words = Words::<[u8; SIZE]>::zeroed();
        let value: [u8; SIZE] = core::array::from_fn(|i| i as u8 ^ 0x55);
        let mut found = [0; SIZE];
        // SAFETY: both are arrays of SIZE bytes of our own.
        unsafe {
            words.store(&raw const value);
            words.load(&raw mut found);
        }
        assert_eq!(found, value);
    }

    #[test]
    fn values_of_every_size_come_out_as_they_went_in() {
        survives::<0>();
        survives::<1>();
        survives::<3>();
        survives::<4>();
        survives::<7>();
        survives::<8>();
        survives::<15>();
        survives::<16>();
        survives::<29>();
        survives::<63>();
        survives::<64>();
        survives::<72>();
        survives::<144>();
        survives::<151>();
        survives::<176>();
        survives::<192>();
        survives::<200>();
        survives::<250>();
    }

    #[test]
    fn a_word_that_changed_is_seen_wherever_it_is() {
        #[repr(align(16))]
        struct Aligned([u64; 34]);

        let kept = Aligned(core::array::from_fn(|index| index as u64));
        for pairs in 0..=17 {
            for changed in 0..34 {
                let mut shared = Aligned(kept.0);
                shared.0[changed] ^= 1 << (changed * 2 % 64);
                // SAFETY: both are 17 pairs of our own.
                let (compared, is_same) =
                    unsafe { same_pairs(shared.0.as_ptr().cast(), kept.0.as_ptr().cast(), pairs) };
                assert!(compared == pairs || compared == 0);
                assert_eq!(is_same, changed >= 2 * compared, "{pairs} {changed}");
            }
        }
    }
}
