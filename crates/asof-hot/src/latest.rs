//! The latest value, small: one writer, any number of readers, plain data.
//!
//! A single-slot seqlock makes every reader wait while a write is under way, and for ever if the writer dies in it.
//! Here the writer fills one of N slots while readers use the one before: a reader repeats itself only if the writer
//! published N-1 whole values during one copy, and never waits for anybody.

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
    /// The newest whole generation; 0 before the first.
    head: Padded<AtomicWord>,
    slots: [Slot<T>; N],
}

/// Invariant: while `mark` is g and the head has reached g, the contents are those of generation g, whole. The mark
/// changes before the contents do.
#[repr(C, align(128))]
struct Slot<T> {
    mark: AtomicWord,
    stamp: Words<u64>,
    value: Words<T>,
}

/// Makes a latest value whose ends share it by `Arc`.
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
        /// Nothing written yet.
        pub fn new() -> Self {
            const { assert!(N >= 2 && N.is_power_of_two(), "the number of slots is a power of two, from 2 on") };
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

    /// Where things lie: the slots; the size of a slot, and in it the stamp and the value.
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

    /// The two ends, for as long as this is borrowed.
    pub fn split(&mut self) -> (LatestWriter<T, N, &Self>, LatestReader<T, N, &Self>) {
        // SAFETY: borrowed for changing, so no other end is alive.
        let writer = unsafe { LatestWriter::attach(&*self) };
        (writer, LatestReader::attach(&*self))
    }
}

impl<T: Plain, const N: usize> Default for Latest<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

/// The end that writes. There is one.
pub struct LatestWriter<T, const N: usize = 8, H = Owned<Latest<T, N>>> {
    memory: H,
    generation: Word,
    _type: PhantomData<T>,
}

impl<T: Plain, const N: usize, H: Handle<Target = Latest<T, N>>> LatestWriter<T, N, H> {
    /// Becomes the writer; goes on where the last one stopped, even in the middle of a write.
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

    /// Publishes the last value, changed by `change`; readers keep the last one for as long as that takes.
    ///
    /// Before the first write the value to change is all zeros.
    pub fn update(&mut self, stamp: MonoStamp, change: impl FnOnce(&mut T)) {
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: there is room for a T; nobody but us writes the slot, so it is whole; zeros are a T before that.
        let mut value = unsafe {
            self.memory
                .slot(slot_of(self.generation, N))
                .load(value.as_mut_ptr().cast());
            value.assume_init()
        };
        change(&mut value);
        self.write(&value, stamp);
    }

    /// The generation of the last value that was written; 0 before the first.
    pub fn generation(&self) -> u64 {
        self.generation as u64
    }

    /// Writes as [`write`](Self::write) does but dies after so many steps, as a process can; for the models.
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

/// An end that reads. It only ever loads, so there may be any number, and the memory may be mapped for reading only.
#[derive(Clone)]
pub struct LatestReader<T, const N: usize = 8, H = Owned<Latest<T, N>>> {
    memory: H,
    pace: Pace,
    _type: PhantomData<T>,
}

/// How lively the writer is, as far as one reader has seen.
///
/// A new value costs a reader two fetches from the writer's core: of the head, then of the slot that it names. A
/// reader that sees new values all the time fetches the next slot before the head names it, which halves its wait: from
/// three quarters of the reads on that the last value lasted for, as a fetch before the writer has begun is in vain, costs
/// half of a quiet read, and takes the lines from the writer, on processors that fetch lines in pairs more than are asked
/// for. One that sees no new value for a while stops that, and remembers where the value lies.
#[derive(Clone)]
struct Pace {
    /// What has been the newest value for so long that no other is expected soon.
    settled: Cell<Settled>,
    newest: Cell<Word>,
    reads_of_newest: Cell<u32>,
    /// The reads of a value from which on the next one is expected.
    fetch_from: Cell<u32>,
}

impl Pace {
    /// Reads of one generation after which it is taken to be settled; in a model, at once.
    const SETTLED_AFTER_READS: u32 = if cfg!(loom) { 0 } else { 256 };

    fn new() -> Self {
        Pace {
            settled: Cell::new(Settled::NOTHING),
            newest: Cell::new(0),
            reads_of_newest: Cell::new(0),
            fetch_from: Cell::new(0),
        }
    }

    #[inline(always)]
    fn saw<T, const N: usize>(&self, meta: Meta) {
        let generation = meta.generation as Word;
        if self.newest.replace(generation) == generation {
            self.reads_of_newest.set(self.reads_of_newest.get() + 1);
        } else {
            let reads = self.reads_of_newest.replace(0);
            self.fetch_from.set(reads - reads / 4);
            self.settled.set(Settled::NOTHING);
        }
        if self.reads_of_newest.get() >= Self::SETTLED_AFTER_READS {
            self.settled.set(Settled::new::<T, N>(meta));
        }
    }
}

/// A value that was read once: what a reader need not find out again while it is the newest.
#[derive(Clone, Copy)]
pub(crate) struct Settled {
    generation: Word,
    /// How many bytes after the first slot its slot lies.
    place: usize,
    stamp: MonoStamp,
}

impl Settled {
    /// No value at all.
    pub(crate) const NOTHING: Settled = Settled {
        generation: NEVER,
        place: 0,
        stamp: MonoStamp(0),
    };

    /// Of a value in one of N slots.
    pub(crate) const fn new<T, const N: usize>(meta: Meta) -> Self {
        let generation = meta.generation as Word;
        Settled {
            generation,
            place: slot_of(generation, N) * size_of::<Slot<T>>(),
            stamp: meta.stamp,
        }
    }
}

/// The writer published so many values during so many copies that none of them came out whole.
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
    /// One more reader.
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
        // SAFETY: it was just filled with a whole T.
        Some(unsafe { sample(value, meta) })
    }

    /// The newest value, into room of the caller's own: the fastest way. `None`, with the room untouched, before
    /// the first.
    #[inline(always)]
    pub fn read_into(&self, target: &mut T) -> Option<Meta> {
        // SAFETY: there is room for a T, and any bytes are one.
        unsafe { self.copy_newest(target) }.map(|(meta, _)| meta)
    }

    /// As [`read_into`](Self::read_into), also telling how often the writer overtook the copy.
    #[inline]
    pub fn read_counting_retries(&self, target: &mut T) -> Option<(Meta, u32)> {
        // SAFETY: there is room for a T, and any bytes are one.
        unsafe { self.copy_newest(target) }
    }

    /// The newest value, in one attempt: no loop at all.
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

    /// The newest value, if it is another than the one of generation `seen`.
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

    /// The value of one generation, while it is among the last N-1.
    pub fn read_generation(&self, generation: u64) -> Option<Reading<T>> {
        let newest = self.memory.head.load(order::latest_head_load());
        let wanted = generation as Word;
        if wanted == 0 || wanted as u64 != generation || newest.wrapping_sub(wanted) >= N as Word {
            return None;
        }
        self.at_generation(wanted)
    }

    /// The newest value stamped at or before `stamp`, while it is among the last N-1.
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
        let settled = self.pace.settled.get();
        // SAFETY: the caller's promise; what is settled was read from this memory.
        if let Some(meta) = unsafe { copy_settled(&*self.memory, settled, target) } {
            return Some((meta, 0));
        }
        // SAFETY: the caller's promise.
        unsafe { self.copy_unsettled(target) }
    }

    /// # Safety
    /// `target` is valid for writing a T.
    #[inline(always)]
    unsafe fn copy_unsettled(&self, target: *mut T) -> Option<(Meta, u32)> {
        // By what was seen last, not by what is seen now: both fetches are under way at once.
        if self.pace.reads_of_newest.get() >= self.pace.fetch_from.get() {
            let next = slot_of(self.pace.newest.get().wrapping_add(1), N);
            fetch_for_reading(
                (&raw const self.memory.slots[next]).cast(),
                core::mem::offset_of!(Slot<T>, value) + size_of::<T>(),
            );
        }
        // SAFETY: the caller's promise.
        let (meta, retries) = unsafe { newest(&*self.memory, target.cast()) }?;
        self.pace.saw::<T, N>(meta);
        Some((meta, retries))
    }

    #[inline(always)]
    fn at_generation(&self, generation: Word) -> Option<Reading<T>> {
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: there is room for a T.
        let meta = unsafe { copy_out(&*self.memory, generation, value.as_mut_ptr().cast()) }?;
        // SAFETY: it was just filled with a whole T.
        Some(unsafe { sample(value, meta) })
    }
}

/// # Safety
/// The value was filled.
#[inline(always)]
unsafe fn sample<T>(value: MaybeUninit<T>, meta: Meta) -> Reading<T> {
    // SAFETY: by the caller's promise.
    Reading::new(unsafe { value.assume_init() }, meta)
}

/// What the protocol needs of the memory; typed here, of a size known at run time only in the C interface.
pub(crate) trait Memory {
    type Slot: SlotMemory;
    fn head(&self) -> &AtomicWord;
    /// How many slots; a power of two.
    fn slots(&self) -> usize;
    fn slot(&self, slot: usize) -> Self::Slot;
}

/// One slot, where it is: three things at fixed distances from one address.
pub(crate) trait SlotMemory {
    fn mark(&self) -> &AtomicWord;
    fn stamp(&self) -> &Words<u64>;
    /// # Safety
    /// `source` is valid for a value, and nobody else stores to the slot.
    unsafe fn store(&self, source: *const u8);
    /// # Safety
    /// `target` is valid for a value.
    unsafe fn load(&self, target: *mut u8);
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
}

/// A slot of a memory that is alive.
pub(crate) struct SlotRef<T>(*const Slot<T>);

impl<T: Plain> SlotRef<T> {
    #[inline(always)]
    fn slot(&self) -> &Slot<T> {
        // SAFETY: made by `slot`, of a memory that the protocol borrows for longer.
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
        // SAFETY: the caller's promise.
        unsafe { self.slot().value.store(source.cast()) }
    }
    #[inline(always)]
    unsafe fn load(&self, target: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { self.slot().value.load(target.cast()) }
    }
}

/// The same address, but the compiler does not know where it came from: it then computes it once, where it would
/// otherwise compute each of the three things' address from the beginning. A fifth of the time of a quiet read.
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

/// The generation that is never reached.
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
    // 32-bit counters come to their end, and go on with another number of the same slot.
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
    // SAFETY: we are the only writer; the stamp is a u64, the source the caller's promise.
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

/// Copies the newest value out; also says how often the writer overtook the copy. `None` before the first value.
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
        // SAFETY: the caller's promise.
        if let Some(meta) = unsafe { copy_out(memory, generation, target) } {
            return Some((meta, retries));
        }
        // The mark that was seen came after N-1 more values. The fence of the next check, at the latest, shows that the
        // head has passed them.
        retries += 1;
    }
}

/// Copies the newest value out if it is the one that was settled upon; of that one, all but the value is known.
///
/// One look at the head, after the copy, is enough. The slot was whole when it was read before, and is not touched again
/// before the head has passed it by N-1: if anything of that was copied, the fence shows the head that far. So a quiet
/// read costs the copy and one load, and waits for nothing before it copies.
///
/// # Safety
/// `target` is valid for writing a T, and what is settled, if anything, was read from this memory.
#[inline(always)]
pub(crate) unsafe fn copy_settled<T: Plain, const N: usize>(
    memory: &Latest<T, N>,
    settled: Settled,
    target: *mut T,
) -> Option<Meta> {
    if settled.generation == NEVER {
        return None;
    }
    let slots: *const Slot<T> = memory.slots.as_ptr();
    // SAFETY: the place is that of one of the slots.
    let slot = SlotRef(opaque(unsafe { slots.byte_add(settled.place) }));
    // SAFETY: the caller's promise.
    unsafe { slot.load(target.cast()) };
    order::latest_check_fence();
    if memory.head.load(Ordering::Relaxed) != settled.generation {
        return None;
    }
    Some(Meta {
        generation: settled.generation as u64,
        stamp: settled.stamp,
    })
}

/// Copies a generation out that the head has reached; `None` if its slot was taken for a newer one meanwhile.
///
/// # Safety
/// `target` is valid for a value.
#[inline(always)]
unsafe fn copy_out<M: Memory>(memory: &M, generation: Word, target: *mut u8) -> Option<Meta> {
    let slot = memory.slot(slot_of(generation, memory.slots()));
    // SAFETY: the caller's promise.
    unsafe { copy_slot(&slot, generation, target) }
}

/// As [`copy_out`], of the slot that is the generation's.
///
/// # Safety
/// `target` is valid for a value.
#[inline(always)]
unsafe fn copy_slot(slot: &impl SlotMemory, generation: Word, target: *mut u8) -> Option<Meta> {
    let mut stamp = 0;
    // SAFETY: the stamp is a u64, the target the caller's promise.
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
