//! The latest value, small: one writer, any number of readers, plain data.
//!
//! A single-slot seqlock makes every reader wait during a write, and forever if the writer dies in it. Here the writer
//! fills one of N slots while readers use the one before: a reader retries only if the writer published N-1 complete
//! values during one copy, and never waits.

use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::MaybeUninit;

use crate::handle::{Handle, Owned};
use crate::order;
use crate::plain::Plain;
use crate::stamp::{Meta, MonoStamp, Reading};
use crate::steps::{Steps, Whole};
use crate::sync::{AtomicWord, Ordering, Padded, Word, const_unless_loom};
use crate::words::{Words, fetch_for_reading};

/// The memory of a latest value: a head that names the newest of N slots.
///
/// N is a power of two, at least 2; the slots are also a short history of the last N-1 values.
#[repr(C)]
pub struct Latest<T, const N: usize = 8> {
    /// The newest complete generation; 0 before the first.
    head: Padded<AtomicWord>,
    slots: [Slot<T>; N],
}

/// Invariant: while `mark` is g and the head has reached g, the contents are generation g, complete. The mark changes
/// before the contents do.
#[repr(C, align(128))]
struct Slot<T> {
    mark: AtomicWord,
    stamp: Words<u64>,
    value: Words<T>,
}

/// Creates a latest value whose ends share an `Arc`.
///
/// ```
/// use asof_hot::{latest, MonoStamp};
///
/// let (mut writer, reader) = latest::<[f64; 3], 8>();
/// assert!(reader.read().is_none(), "nothing was written yet");
///
/// writer.write(&[1.0, 2.0, 0.5], MonoStamp(1_000));
/// let pose = reader.read().unwrap();
/// assert_eq!(pose.value, [1.0, 2.0, 0.5]);
/// assert_eq!(pose.age(MonoStamp(1_250)).as_nanos(), 250);
/// assert!(reader.read_if_newer(pose.generation).is_none());
/// ```
#[cfg(feature = "alloc")]
pub fn latest<T: Plain, const N: usize>() -> (LatestWriter<T, N>, LatestReader<T, N>) {
    let shared = Owned::new(Latest::new());
    // SAFETY: the memory is new, so there is no other writer.
    let writer = unsafe { LatestWriter::attach(shared.clone()) };
    (writer, LatestReader::attach(shared))
}

impl<T: Plain, const N: usize> Latest<T, N> {
    const_unless_loom! {
        /// An empty latest value.
        pub fn new() -> Self {
            const { assert!(N >= 2 && N.is_power_of_two(), "the number of slots must be a power of two, at least 2") };
            Latest {
                head: Padded(AtomicWord::new(0)),
                #[cfg(not(loom))]
                slots: [const { Slot { mark: AtomicWord::new(0), stamp: Words::zeroed(), value: Words::zeroed() } }; N],
                #[cfg(loom)]
                slots: core::array::from_fn(|_| Slot {
                    mark: AtomicWord::new(0), stamp: Words::zeroed(), value: Words::zeroed(),
                }),
            }
        }
    }

    /// Offsets: the slots; the size of a slot, and in it the stamp and the value.
    #[cfg(all(test, feature = "ffi", not(loom)))]
    pub(crate) fn offsets() -> [usize; 4] {
        use core::mem::offset_of;
        [
            offset_of!(Self, slots),
            size_of::<Slot<T>>(),
            offset_of!(Slot<T>, stamp),
            offset_of!(Slot<T>, value),
        ]
    }

    /// The two ends, which borrow this.
    pub fn split(&mut self) -> (LatestWriter<T, N, &Self>, LatestReader<T, N, &Self>) {
        // SAFETY: borrowed mutably, so no other end is alive.
        let writer = unsafe { LatestWriter::attach(&*self) };
        (writer, LatestReader::attach(&*self))
    }
}

impl<T: Plain, const N: usize> Default for Latest<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

/// The writing end. There is one.
pub struct LatestWriter<T, const N: usize = 8, H = Owned<Latest<T, N>>> {
    memory: H,
    generation: Word,
    _type: PhantomData<T>,
}

impl<T: Plain, const N: usize, H: Handle<Target = Latest<T, N>>> LatestWriter<T, N, H> {
    /// Becomes the writer; continues where the last one stopped, even in the middle of a write.
    ///
    /// # Safety
    /// No other writer of this memory is alive.
    pub unsafe fn attach(memory: H) -> Self {
        let generation = memory.head.load(Ordering::Relaxed);
        LatestWriter {
            memory,
            generation,
            _type: PhantomData,
        }
    }

    /// Publishes a value.
    #[inline(always)]
    pub fn write(&mut self, value: &T, stamp: MonoStamp) {
        self.write_steps(value, stamp, &mut Whole);
    }

    /// Publishes the last value, changed by `change`; readers see the last value in the meantime.
    ///
    /// Before the first write the value to change is all zeros.
    pub fn update(&mut self, stamp: MonoStamp, change: impl FnOnce(&mut T)) {
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: there is room for a T; only we write the slot, so it is complete; before the first write zeros are a
        // valid T.
        let mut value = unsafe {
            self.memory
                .slot(slot_of(self.generation, N))
                .load(value.as_mut_ptr().cast());
            value.assume_init()
        };
        change(&mut value);
        self.write(&value, stamp);
    }

    /// The generation of the last written value; 0 before the first.
    pub fn generation(&self) -> u64 {
        self.generation as u64
    }

    /// Like [`write`](Self::write), but dies after `steps` steps, as a process can; for the models.
    #[cfg(loom)]
    pub fn write_and_die(mut self, value: &T, stamp: MonoStamp, steps: usize) {
        self.write_steps(value, stamp, &mut crate::steps::DiesAfter(steps));
    }

    #[inline(always)]
    fn write_steps(&mut self, value: &T, stamp: MonoStamp, steps: &mut impl Steps) {
        // SAFETY: we are the only writer, and `value` is a T.
        self.generation = unsafe {
            publish(
                &*self.memory,
                self.generation,
                (&raw const *value).cast(),
                stamp,
                steps,
            )
        };
    }
}

/// A reading end. It only loads, so there may be any number, and the memory may be mapped read-only.
#[derive(Clone)]
pub struct LatestReader<T, const N: usize = 8, H = Owned<Latest<T, N>>> {
    memory: H,
    pace: Pace,
    _type: PhantomData<T>,
}

/// How often the writer writes, as observed by one reader.
///
/// A new value costs a reader two fetches from the writer's core: of the head, then of the slot that it names. A reader
/// that often sees new values prefetches the next slot before the head names it, which halves its wait. It does so from
/// three quarters of the number of reads that the last value lasted: a prefetch before the writer has begun is wasted,
/// costs half of a quiet read, and takes cache lines from the writer, on processors that fetch lines in pairs more than
/// requested. A reader that sees no new value for a while stops prefetching and remembers where the value is.
#[derive(Clone)]
pub(crate) struct Pace {
    /// The newest value, if it has not changed for so long that no other is expected soon.
    settled: Cell<Settled>,
    newest: Cell<Word>,
    reads_of_newest: Cell<u32>,
    /// The number of reads of a value after which the next one is expected.
    fetch_from: Cell<u32>,
}

impl Pace {
    /// The number of reads of one generation after which it counts as settled; in a model, at once.
    const SETTLED_AFTER_READS: u32 = if cfg!(loom) { 0 } else { 256 };

    pub(crate) fn new() -> Self {
        Pace {
            settled: Cell::new(Settled::NOTHING),
            newest: Cell::new(0),
            reads_of_newest: Cell::new(0),
            fetch_from: Cell::new(0),
        }
    }

    /// Copies the newest value out; also returns how often the writer overtook the copy.
    ///
    /// # Safety
    /// `target` is valid for a value, and the memory is always the same.
    #[inline(always)]
    pub(crate) unsafe fn read<M: Memory>(
        &self,
        memory: &M,
        target: *mut u8,
    ) -> Option<(Meta, u32)> {
        let settled = self.settled.get();
        if settled.generation != NEVER {
            // SAFETY: upheld by the caller; the settled value was read from this memory.
            if let Some(meta) = unsafe { copy_settled(memory, memory.head(), settled, target) } {
                return Some((meta, 0));
            }
        }
        // By what was seen last, not by what is seen now: so both fetches run at once.
        if self.reads_of_newest.get() >= self.fetch_from.get() {
            let next = slot_of(self.newest.get().wrapping_add(1), memory.slots());
            memory.slot(next).fetch();
        }
        // SAFETY: upheld by the caller.
        let (meta, retries) = unsafe { newest(memory, target) }?;
        self.saw(memory, meta);
        Some((meta, retries))
    }

    #[inline(always)]
    fn saw<M: Memory>(&self, memory: &M, meta: Meta) {
        let generation = meta.generation as Word;
        if self.newest.replace(generation) == generation {
            self.reads_of_newest.set(self.reads_of_newest.get() + 1);
        } else {
            let reads = self.reads_of_newest.replace(0);
            self.fetch_from.set(reads - reads / 4);
            self.settled.set(Settled::NOTHING);
        }
        if self.reads_of_newest.get() >= Self::SETTLED_AFTER_READS {
            self.settled.set(Settled::new(memory, meta));
        }
    }
}

/// A value that was read before, with what need not be looked up again while it is the newest.
#[derive(Clone, Copy)]
pub(crate) struct Settled {
    generation: Word,
    /// Its place in the memory that it was read from.
    value: *const u8,
    stamp: MonoStamp,
}

// SAFETY: the place is only read, as any thread may that has the memory.
unsafe impl Send for Settled {}

impl Settled {
    /// No value at all: a generation that no head has.
    pub(crate) const NOTHING: Settled = Settled {
        generation: NEVER,
        value: core::ptr::null(),
        stamp: MonoStamp(0),
    };

    /// No value either, but some place in this memory.
    pub(crate) fn nothing_in<M: Memory>(memory: &M) -> Self {
        Settled {
            value: memory.slot(0).value(),
            ..Settled::NOTHING
        }
    }

    /// Of a value that was read from this memory.
    pub(crate) fn new<M: Memory>(memory: &M, meta: Meta) -> Self {
        let generation = meta.generation as Word;
        Settled {
            generation,
            value: memory.slot(slot_of(generation, memory.slots())).value(),
            stamp: meta.stamp,
        }
    }
}

/// The writer overtook every attempt to copy a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outrun;

impl core::fmt::Display for Outrun {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(
            "the writer overtook every attempt to copy the value: try again, or use more slots",
        )
    }
}

impl core::error::Error for Outrun {}

impl<T: Plain, const N: usize, H: Handle<Target = Latest<T, N>>> LatestReader<T, N, H> {
    /// A new reader.
    pub fn attach(memory: H) -> Self {
        LatestReader {
            memory,
            pace: Pace::new(),
            _type: PhantomData,
        }
    }

    /// The newest value; `None` before the first.
    #[inline(always)]
    pub fn read(&self) -> Option<Reading<T>> {
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: there is room for a T.
        let (meta, _) = unsafe { self.copy_newest(value.as_mut_ptr()) }?;
        // SAFETY: it was just filled with a complete T.
        Some(unsafe { sample(value, meta) })
    }

    /// Copies the newest value into `target`: the fastest way. `None`, with `target` unchanged, before the first.
    #[inline(always)]
    pub fn read_into(&self, target: &mut T) -> Option<Meta> {
        // SAFETY: there is room for a T, and any bytes are a valid T.
        unsafe { self.copy_newest(target) }.map(|(meta, _)| meta)
    }

    /// Like [`read_into`](Self::read_into), also returning how often the writer overtook the copy.
    #[inline]
    pub fn read_counting_retries(&self, target: &mut T) -> Option<(Meta, u32)> {
        // SAFETY: there is room for a T, and any bytes are a valid T.
        unsafe { self.copy_newest(target) }
    }

    /// The newest value, in one attempt without a loop.
    ///
    /// # Errors
    /// [`Outrun`] if the writer published N-1 values during the copy.
    #[inline]
    pub fn try_read(&self) -> Result<Option<Reading<T>>, Outrun> {
        let generation = self.memory.head.load(order::latest_head_load());
        if generation == 0 {
            return Ok(None);
        }
        self.at_generation(generation).map(Some).ok_or(Outrun)
    }

    /// The newest value, if its generation is not `seen`.
    #[inline]
    pub fn read_if_newer(&self, seen: u64) -> Option<Reading<T>> {
        if self.generation() == seen {
            return None;
        }
        self.read()
    }

    /// The generation of the newest value; 0 before the first.
    #[inline(always)]
    pub fn generation(&self) -> u64 {
        self.memory.head.load(order::latest_head_load()) as u64
    }

    /// The value of one generation, if it is among the last N-1.
    pub fn read_generation(&self, generation: u64) -> Option<Reading<T>> {
        let newest = self.memory.head.load(order::latest_head_load());
        let wanted = generation as Word;
        if wanted == 0 || wanted as u64 != generation || newest.wrapping_sub(wanted) >= N as Word {
            return None;
        }
        self.at_generation(wanted)
    }

    /// The newest value stamped at or before `stamp`, if it is among the last N-1.
    pub fn read_at(&self, stamp: MonoStamp) -> Option<Reading<T>> {
        let newest = self.generation();
        let oldest = newest.saturating_sub(N as u64 - 2).max(1);
        (oldest..=newest)
            .rev()
            .filter_map(|generation| self.read_generation(generation))
            .find(|sample| sample.stamp <= stamp)
    }

    /// # Safety
    /// `target` is valid for writing a T.
    #[inline(always)]
    unsafe fn copy_newest(&self, target: *mut T) -> Option<(Meta, u32)> {
        // SAFETY: upheld by the caller; a handle always leads to the same memory.
        unsafe { self.pace.read(&*self.memory, target.cast()) }
    }

    #[inline(always)]
    fn at_generation(&self, generation: Word) -> Option<Reading<T>> {
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: there is room for a T.
        let meta = unsafe { copy_out(&*self.memory, generation, value.as_mut_ptr().cast()) }?;
        // SAFETY: it was just filled with a complete T.
        Some(unsafe { sample(value, meta) })
    }
}

/// # Safety
/// The value was filled.
#[inline(always)]
unsafe fn sample<T>(value: MaybeUninit<T>, meta: Meta) -> Reading<T> {
    // SAFETY: upheld by the caller.
    Reading::new(unsafe { value.assume_init() }, meta)
}

/// What the protocol needs of the memory: typed here, sized at run time in the C interface.
pub(crate) trait Memory {
    type Slot: SlotMemory;
    fn head(&self) -> &AtomicWord;
    /// The number of slots; a power of two.
    fn slots(&self) -> usize;
    fn slot(&self, slot: usize) -> Self::Slot;
    /// Copies out a value that is at this place.
    ///
    /// # Safety
    /// It is the place of a value in this memory, and `target` is valid for a value.
    unsafe fn load(&self, value: *const u8, target: *mut u8);
}

/// One slot: three fields at fixed offsets from one address.
pub(crate) trait SlotMemory {
    fn mark(&self) -> &AtomicWord;
    fn stamp(&self) -> &Words<u64>;
    /// # Safety
    /// `source` is valid for a value, and nothing else stores to the slot.
    unsafe fn store(&self, source: *const u8);
    /// The place of the value.
    fn value(&self) -> *const u8;
    /// # Safety
    /// `target` is valid for a value.
    unsafe fn load(&self, target: *mut u8);
    /// Prefetches the slot for reading.
    fn fetch(&self);
}

impl<T: Plain, const N: usize> Memory for Latest<T, N> {
    type Slot = SlotRef<T>;
    #[inline(always)]
    fn head(&self) -> &AtomicWord {
        &self.head
    }
    #[inline(always)]
    fn slots(&self) -> usize {
        N
    }
    #[inline(always)]
    fn slot(&self, slot: usize) -> SlotRef<T> {
        SlotRef(opaque(&raw const self.slots[slot & (N - 1)]))
    }
    #[inline(always)]
    unsafe fn load(&self, value: *const u8, target: *mut u8) {
        // SAFETY: upheld by the caller.
        unsafe { (*value.cast::<Words<T>>()).load(target.cast()) }
    }
}

/// A slot of live memory.
pub(crate) struct SlotRef<T>(*const Slot<T>);

impl<T: Plain> SlotRef<T> {
    #[inline(always)]
    fn slot(&self) -> &Slot<T> {
        // SAFETY: made by `slot`, from memory that the protocol borrows for longer.
        unsafe { &*self.0 }
    }
}

impl<T: Plain> SlotMemory for SlotRef<T> {
    #[inline(always)]
    fn mark(&self) -> &AtomicWord {
        &self.slot().mark
    }
    #[inline(always)]
    fn stamp(&self) -> &Words<u64> {
        &self.slot().stamp
    }
    #[inline(always)]
    unsafe fn store(&self, source: *const u8) {
        // SAFETY: upheld by the caller.
        unsafe { self.slot().value.store(source.cast()) }
    }
    #[inline(always)]
    fn value(&self) -> *const u8 {
        (&raw const self.slot().value).cast()
    }
    #[inline(always)]
    unsafe fn load(&self, target: *mut u8) {
        // SAFETY: upheld by the caller.
        unsafe { self.slot().value.load(target.cast()) }
    }
    #[inline(always)]
    fn fetch(&self) {
        let size = core::mem::offset_of!(Slot<T>, value) + size_of::<T>();
        fetch_for_reading(self.0.cast(), size);
    }
}

/// The same address with its origin hidden from the compiler, which then computes it once instead of once for each of
/// the three fields. Saves a fifth of the time of a quiet read.
#[inline(always)]
#[allow(unused_mut, clippy::pointers_in_nomem_asm_block)]
fn opaque<S>(mut slot: *const S) -> *const S {
    #[cfg(all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        not(any(miri, loom))
    ))]
    // SAFETY: the assembly is empty.
    unsafe {
        core::arch::asm!("/* {slot} */", slot = inout(reg) slot, options(pure, nomem, nostack, preserves_flags));
    }
    slot
}

#[inline(always)]
const fn slot_of(generation: Word, slots: usize) -> usize {
    generation as usize & (slots - 1)
}

/// A generation that is never reached.
const NEVER: Word = Word::MAX;

/// Writes the generation after `last` and returns it.
///
/// # Safety
/// The caller is the only writer, and `source` is valid for a value.
#[inline(always)]
pub(crate) unsafe fn publish<M: Memory>(
    memory: &M,
    last: Word,
    source: *const u8,
    stamp: MonoStamp,
    steps: &mut impl Steps,
) -> Word {
    // 32-bit counters overflow, and continue with another number of the same slot.
    let generation = match last.wrapping_add(1) {
        NEVER => memory.slots() as Word - 1,
        next => next,
    };
    let slot = memory.slot(slot_of(generation, memory.slots()));
    if steps.stop() {
        return last;
    }
    slot.mark().store(generation, order::latest_mark_store());
    order::latest_claim_fence();
    if steps.stop() {
        return last;
    }
    // SAFETY: we are the only writer; the stamp is a u64, the source is valid by the caller's promise.
    unsafe {
        slot.stamp().store(&raw const stamp.0);
        if steps.stop() {
            return last;
        }
        slot.store(source);
    }
    if steps.stop() {
        return last;
    }
    memory.head().store(generation, order::latest_head_store());
    generation
}

/// Copies the newest value out; also returns how often the writer overtook the copy. `None` before the first value.
///
/// # Safety
/// `target` is valid for a value.
#[inline(always)]
pub(crate) unsafe fn newest<M: Memory>(memory: &M, target: *mut u8) -> Option<(Meta, u32)> {
    let mut retries = 0;
    loop {
        let generation = memory.head().load(order::latest_head_load());
        if generation == 0 {
            return None;
        }
        // SAFETY: upheld by the caller.
        if let Some(meta) = unsafe { copy_out(memory, generation, target) } {
            return Some((meta, retries));
        }
        // The mark that was seen came after N-1 more values. At the latest after the fence of the next check, the head
        // is seen to have passed them.
        retries += 1;
    }
}

/// Copies the newest value out if it is the settled one; of that one, everything but the value is known.
///
/// One load of the head, after the copy, is enough. The slot was complete when it was read before, and is not written
/// again before the head has passed it by N-1: if any of that was copied, the fence makes the head visible that far. So
/// a quiet read costs the copy and one load, and waits for nothing before it copies.
///
/// # Safety
/// `target` is valid for a value, and the settled value, if any, was read from this memory, or one of the same type with
/// this head.
#[inline(always)]
pub(crate) unsafe fn copy_settled<M: Memory>(
    memory: &M,
    head: &AtomicWord,
    settled: Settled,
    target: *mut u8,
) -> Option<Meta> {
    // SAFETY: the place was that of a value; the target is valid by the caller's promise.
    unsafe { memory.load(settled.value, target) };
    order::latest_check_fence();
    if head.load(Ordering::Relaxed) != settled.generation {
        return None;
    }
    Some(Meta {
        generation: settled.generation as u64,
        stamp: settled.stamp,
    })
}

/// Copies out a generation that the head has reached; `None` if its slot was reused for a newer one in the meantime.
///
/// # Safety
/// `target` is valid for a value.
#[inline(always)]
unsafe fn copy_out<M: Memory>(memory: &M, generation: Word, target: *mut u8) -> Option<Meta> {
    let slot = memory.slot(slot_of(generation, memory.slots()));
    // SAFETY: upheld by the caller.
    unsafe { copy_slot(&slot, generation, target) }
}

/// Like [`copy_out`], from the slot of that generation.
///
/// # Safety
/// `target` is valid for a value.
#[inline(always)]
unsafe fn copy_slot(slot: &impl SlotMemory, generation: Word, target: *mut u8) -> Option<Meta> {
    let mut stamp = 0;
    // SAFETY: the stamp is a u64, the target is valid by the caller's promise.
    unsafe {
        slot.stamp().load(&raw mut stamp);
        slot.load(target);
    }
    order::latest_check_fence();
    if slot.mark().load(Ordering::Relaxed) != generation {
        return None;
    }
    Some(Meta {
        generation: generation as u64,
        stamp: MonoStamp(stamp),
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_comes_to_its_end_goes_on_slot_by_slot() {
        let memory = Latest::<u64, 4>::new();
        let reader = LatestReader::attach(&memory);
        let mut last = NEVER - 3;
        for value in 1..=6_u64 {
            // SAFETY: there is one writer, and the source is a u64.
            let next = unsafe {
                publish(
                    &memory,
                    last,
                    (&raw const value).cast(),
                    MonoStamp(0),
                    &mut Whole,
                )
            };
            assert_eq!(slot_of(next, 4), (slot_of(last, 4) + 1) % 4);
            assert!(next != 0 && next != NEVER);
            assert_eq!(reader.read().map(|sample| sample.value), Some(value));
            last = next;
        }
    }
}
