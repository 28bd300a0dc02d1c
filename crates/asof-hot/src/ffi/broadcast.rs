//! The ring for several readers.

use core::ffi::{c_char, c_void};
use core::sync::atomic::Ordering;

use super::{AsofMeta, AsofType, Body, boxed, close, layout, open_or_create, stride, tell, within};
use crate::broadcast::{MAX_READERS, Memory, ProducerState, ReaderState};
use crate::claim::Claim as Reading;
use crate::shm::mapping::Claim;
use crate::shm::{Role, ShmError, claim};
use crate::steps::Whole;
use crate::sync::{AtomicCounter, AtomicMark};

// The layout of `Broadcast`, for types aligned to at most 8: two counters, a position for each reader, then the slots,
// each a mark, a stamp, a value.
const HEAD: usize = 0;
const REFUSED: usize = 128;
const PLACES: usize = 384;
const PLACE: usize = 128;
const STAMP: usize = 8;
const VALUE: usize = 16;

const fn slots(readers: usize) -> usize {
    PLACES + readers * PLACE
}
const fn slot_stride(size: usize) -> usize {
    stride(VALUE + size)
}
const fn total(size: usize, capacity: usize, readers: usize) -> usize {
    slots(readers) + (capacity + readers + 1) * slot_stride(size)
}

/// A broadcast ring of a size known at run time.
struct RawBroadcast {
    body: Body,
    capacity: usize,
    readers: usize,
    size: usize,
}

impl RawBroadcast {
    fn slot(&self, slot: usize) -> usize {
        slots(self.readers) + slot * slot_stride(self.size)
    }
    fn stamp(&self, slot: usize) -> *mut u64 {
        self.body.place(self.slot(slot) + STAMP).cast()
    }
    fn value(&self, slot: usize) -> *mut c_void {
        self.body.place(self.slot(slot) + VALUE).cast()
    }
}

impl Memory for RawBroadcast {
    fn capacity(&self) -> usize {
        self.capacity
    }
    fn readers(&self) -> usize {
        self.readers
    }
    fn mark(&self, slot: usize) -> &AtomicMark {
        // SAFETY: the mark is the first field of a slot.
        unsafe { self.body.at(self.slot(slot)) }
    }
    fn head(&self) -> &AtomicMark {
        // SAFETY: the head is the first field of the structure.
        unsafe { self.body.at(HEAD) }
    }
    fn place(&self, reader: usize) -> &AtomicCounter {
        // SAFETY: the positions are there, one after the other.
        unsafe { self.body.at(PLACES + reader * PLACE) }
    }
    fn refused(&self) -> &AtomicCounter {
        // SAFETY: the count is there.
        unsafe { self.body.at(REFUSED) }
    }
}

unsafe fn open(
    name: *const c_char,
    value: &AsofType,
    [capacity, readers]: [u32; 2],
) -> Result<RawBroadcast, ShmError> {
    let count = within(capacity, 1..=1 << 24, "slots of a ring")?;
    let reader_count = within(readers, 1..=MAX_READERS as u32, "readers of a ring")?;
    let total = total(value.size, count, reader_count);
    // SAFETY: upheld by the caller.
    let body = unsafe {
        let layout = layout(value, 7, [capacity, readers, 0], total)?;
        Body::open(name, open_or_create(), &layout, ())?
    };
    Ok(RawBroadcast {
        body,
        capacity: count,
        readers: reader_count,
        size: value.size,
    })
}

/// The writing end of a broadcast ring.
pub struct AsofBroadcastProducer {
    memory: RawBroadcast,
    state: ProducerState,
    open: Option<usize>,
    _claim: Claim,
}

/// A reading end of a broadcast ring, with its own position.
pub struct AsofBroadcastReader {
    memory: RawBroadcast,
    state: ReaderState,
    open: Option<Reading>,
    _claim: Claim,
}

/// Opens or creates a ring that keeps `slots` samples for up to 16 readers, for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_broadcast_producer_open(
    name: *const c_char,
    value: AsofType,
    slots: u32,
    readers: u32,
) -> *mut AsofBroadcastProducer {
    // SAFETY: upheld by the caller.
    let opened = unsafe { open(name, &value, [slots, readers]) };
    boxed(opened.and_then(|memory| {
        let claim = claim(&memory.body.mapping, Role::WRITER)?;
        Ok(AsofBroadcastProducer {
            state: ProducerState::attach(&memory),
            memory,
            open: None,
            _claim: claim,
        })
    }))
}

/// The next slot, to fill in place; there always is one. Returns the same slot until it is committed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_broadcast_try_write(
    producer: *mut AsofBroadcastProducer,
) -> *mut c_void {
    // SAFETY: upheld by the caller.
    let producer = unsafe { &mut *producer };
    producer.open = producer.state.claim(&producer.memory);
    producer.value()
}

/// Like `asof_broadcast_try_write`, but null while a present reader has not read the oldest sample, so no reader misses
/// anything.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_broadcast_try_write_lossless(
    producer: *mut AsofBroadcastProducer,
) -> *mut c_void {
    // SAFETY: upheld by the caller.
    let producer = unsafe { &mut *producer };
    producer.open = producer.state.claim_lossless(&producer.memory);
    producer.value()
}

impl AsofBroadcastProducer {
    fn value(&self) -> *mut c_void {
        self.open
            .map_or(core::ptr::null_mut(), |slot| self.memory.value(slot))
    }
}

/// Gives the taken slot to all readers; does nothing if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_broadcast_commit(producer: *mut AsofBroadcastProducer, stamp: u64) {
    // SAFETY: upheld by the caller.
    let producer = unsafe { &mut *producer };
    if let Some(slot) = producer.open.take() {
        // SAFETY: the slot is out of use, so it belongs to the producer.
        unsafe { producer.memory.stamp(slot).write(stamp) };
        producer.state.publish(&producer.memory, &mut Whole);
    }
}

/// How often there was no slot to write to over the ring's lifetime.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_broadcast_refused(producer: *const AsofBroadcastProducer) -> u64 {
    // SAFETY: upheld by the caller.
    let producer = unsafe { &*producer };
    producer.memory.refused().load(Ordering::Relaxed)
}

/// Stops waiting for a killed reader, counted from 0; false if it does not exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_broadcast_forget_reader(
    producer: *mut AsofBroadcastProducer,
    reader: u32,
) -> bool {
    // SAFETY: upheld by the caller.
    let memory = unsafe { &(*producer).memory };
    let is_there = (reader as usize) < memory.readers;
    if is_there {
        memory.place(reader as usize).store(0, Ordering::Relaxed);
    }
    is_there
}

/// Whether no live process holds a reading end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_broadcast_producer_is_abandoned(
    producer: *const AsofBroadcastProducer,
) -> bool {
    // SAFETY: upheld by the caller.
    !unsafe { &*producer }.memory.body.mapping.is_reader_alive()
}

/// Closes the writing end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_broadcast_producer_close(producer: *mut AsofBroadcastProducer) {
    // SAFETY: upheld by the caller.
    unsafe { close(producer) }
}

/// Opens or creates a ring for reading, as reader `number`, counted from 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_broadcast_reader_open(
    name: *const c_char,
    value: AsofType,
    slots: u32,
    readers: u32,
    number: u32,
) -> *mut AsofBroadcastReader {
    // SAFETY: upheld by the caller.
    let opened = unsafe { open(name, &value, [slots, readers]) };
    boxed(opened.and_then(|memory| {
        let (number, count) = (number as usize, memory.readers);
        if number >= count {
            return Err(ShmError::NoSuchEnd { number, count });
        }
        let claim = claim(&memory.body.mapping, Role::reader(number))?;
        Ok(AsofBroadcastReader {
            state: ReaderState::attach(&memory, number),
            memory,
            open: None,
            _claim: claim,
        })
    }))
}

/// The oldest sample that this reader has not read, in place; the same one until it is released. Null if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_broadcast_try_read(
    reader: *mut AsofBroadcastReader,
    meta: *mut AsofMeta,
) -> *const c_void {
    // SAFETY: upheld by the caller.
    let reader = unsafe { &mut *reader };
    if reader.open.is_none() {
        reader.open = reader.state.claim(&reader.memory);
    }
    // SAFETY: upheld by the caller.
    unsafe { reader.sample(meta) }
}

/// The newest sample, in place; the same one until it is released. Older ones count as missed. Null if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_broadcast_try_latest(
    reader: *mut AsofBroadcastReader,
    meta: *mut AsofMeta,
) -> *const c_void {
    // SAFETY: upheld by the caller.
    let reader = unsafe { &mut *reader };
    if reader.open.is_none() {
        reader.open = reader.state.claim_newest(&reader.memory);
    }
    // SAFETY: upheld by the caller.
    unsafe { reader.sample(meta) }
}

impl AsofBroadcastReader {
    /// # Safety
    /// Null, or valid for writing.
    unsafe fn sample(&self, meta: *mut AsofMeta) -> *const c_void {
        let Some(sample) = self.open else {
            return core::ptr::null();
        };
        // SAFETY: the slot has this reader's bit, so it is not written; the rest is the caller's promise.
        unsafe {
            let found = AsofMeta {
                generation: sample.position,
                stamp: self.memory.stamp(sample.slot).read(),
                missed: sample.missed,
            };
            tell(meta, found);
        }
        self.memory.value(sample.slot)
    }
}

/// Releases the sample and moves on to the next; does nothing if none was taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_broadcast_release(reader: *mut AsofBroadcastReader) {
    // SAFETY: upheld by the caller.
    let reader = unsafe { &mut *reader };
    if let Some(sample) = reader.open.take() {
        reader.state.release(&reader.memory, sample);
    }
}

/// The number of samples that this reader has not taken; more than the ring keeps if it has missed some.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_broadcast_waiting(reader: *const AsofBroadcastReader) -> u64 {
    // SAFETY: upheld by the caller.
    let reader = unsafe { &*reader };
    reader.state.waiting(&reader.memory)
}

/// The total number of samples that this reader has missed or skipped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_broadcast_missed(reader: *const AsofBroadcastReader) -> u64 {
    // SAFETY: upheld by the caller.
    unsafe { &*reader }.state.missed_in_all()
}

/// Whether no live process holds the writing end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_broadcast_reader_is_abandoned(
    reader: *const AsofBroadcastReader,
) -> bool {
    // SAFETY: upheld by the caller.
    !unsafe { &*reader }.memory.body.mapping.is_writer_alive()
}

/// Closes a reading end: the producer no longer waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_broadcast_reader_close(reader: *mut AsofBroadcastReader) {
    // SAFETY: upheld by the caller.
    unsafe {
        if !reader.is_null() {
            asof_broadcast_release(reader);
            (*reader).state.leave(&(*reader).memory);
        }
        close(reader);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Broadcast;

    #[test]
    fn the_numbers_describe_the_rust_structure() {
        fn check<const SIZE: usize, const N: usize, const R: usize>() {
            assert_eq!(total(SIZE, N, R), size_of::<Broadcast<[u8; SIZE], N, R>>());
            let numbers = [
                HEAD,
                REFUSED,
                PLACES,
                slots(R),
                slot_stride(SIZE),
                STAMP,
                VALUE,
            ];
            assert_eq!(numbers, Broadcast::<[u8; SIZE], N, R>::offsets());
        }
        check::<1, 1, 1>();
        check::<144, 8, 2>();
        check::<112, 3, 16>();
    }
}
