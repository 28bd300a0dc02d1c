//! The C interface over the shared-memory forms: what `include/asof_hot.h` is made from.
//!
//! Sizes are known at run time only here, so the memory is described by numbers; the protocols are the same.
//! Every function that can fail returns null (or false) and leaves the reason to `asof_hot_last_error`.

#![allow(clippy::cast_ptr_alignment)] // all that is cast to is at an offset that is aligned for it
#![allow(clippy::missing_safety_doc)] // each says it under "Safety" in the header's words, once, here:
// # Safety
// Handles are those that the opening functions gave and that were not closed; names are strings that end with a zero;
// values are as large as the type that the handle was opened with; a handle is used by one thread at a time.

use core::cell::RefCell;
use core::ffi::{CStr, c_char, c_void};
use std::boxed::Box;
use std::ffi::CString;
use std::string::ToString;
use std::sync::Arc;

use crate::latch::{EventLatch, Observer, Resetter, State, Trigger};
use crate::latest::{self, SlotMemory};
use crate::plain::TypeName;
use crate::ring;
use crate::shm::mapping::{Claim, Mapping};
use crate::shm::{
    BODY, Claimed, Mapped, Opening, Role, Segment, SegmentLayout, ShmError, claim, obtain,
};
use crate::stamp::Stamp;
use crate::steps::Whole;
use crate::sync::{AtomicMark, AtomicWord, Word};
use crate::words::{Words, bytes};

std::thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// What the values of a segment are: as the Rust side declares them with `plain!`.
#[repr(C)]
pub struct AsofType {
    /// The name of the struct.
    pub name: *const c_char,
    /// Its size in bytes.
    pub size: usize,
    /// Its alignment in bytes, 8 at most.
    pub align: usize,
}

/// Which write a value came from, and when that was.
#[repr(C)]
#[derive(Default)]
pub struct AsofMeta {
    /// The how-manieth write, from 1 on.
    pub generation: u64,
    /// The writer's time, in nanoseconds.
    pub stamp: u64,
    /// How many samples before this one were dropped unread (rings only).
    pub missed: u64,
}

/// Why the last call on this thread failed; empty if none did. Valid until the next call.
#[unsafe(no_mangle)]
pub extern "C" fn asof_hot_last_error() -> *const c_char {
    LAST_ERROR.with(|error| error.borrow().as_ptr())
}

/// The time on this machine's monotonic clock, in nanoseconds: what the Rust side stamps with.
#[unsafe(no_mangle)]
pub extern "C" fn asof_hot_now() -> u64 {
    Stamp::now().0
}

/// Removes a segment's name; true if it was there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_hot_remove(name: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    kept(unsafe { text(name) }.and_then(crate::shm::remove)).is_some()
}

fn kept<T>(result: Result<T, ShmError>) -> Option<T> {
    let text = match &result {
        Ok(_) => CString::default(),
        Err(error) => CString::new(error.to_string()).unwrap_or_default(),
    };
    LAST_ERROR.with(|error| *error.borrow_mut() = text);
    result.ok()
}

fn boxed<T>(result: Result<T, ShmError>) -> *mut T {
    kept(result).map_or(core::ptr::null_mut(), |value| {
        Box::into_raw(Box::new(value))
    })
}

/// # Safety
/// Null, or from `boxed` and not closed yet.
unsafe fn close<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// # Safety
/// A string that ends with a zero, alive as long as the result is used.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, ShmError> {
    if text.is_null() {
        return Err(ShmError::BadName("(null)".into()));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str()
        .map_err(|_| ShmError::BadName(text.to_string_lossy().into()))
}

/// # Safety
/// The type's name is a string that ends with a zero.
unsafe fn layout(
    value: &AsofType,
    kind: u32,
    count: u32,
    total: usize,
) -> Result<SegmentLayout, ShmError> {
    if value.align > 8
        || !value.align.is_power_of_two()
        || !value.size.is_multiple_of(value.align)
        || count == 0
    {
        return Err(ShmError::BadName(std::format!(
            "a type of {} bytes aligned to {}, in {count} slots: C types are aligned to 8 at most, in one slot at least",
            value.size,
            value.align
        )));
    }
    Ok(SegmentLayout {
        kind,
        counts: [count, 0, 0],
        // SAFETY: the caller's promise.
        type_name: TypeName::new(unsafe { text(value.name) }?),
        size: value.size as u64,
        align: value.align as u64,
        total: total as u64,
    })
}

// The layouts of the Rust structures, for types aligned to 8 at most; the tests hold the two together.
const fn latest_stride(size: usize) -> usize {
    (16 + size).next_multiple_of(128)
}
const fn latest_total(size: usize, slots: usize) -> usize {
    128 + slots * latest_stride(size)
}
const fn ring_stride(size: usize) -> usize {
    (16 + size).next_multiple_of(128)
}
const RING_SLOTS: usize = 384;
const fn ring_total(size: usize, slots: usize) -> usize {
    RING_SLOTS + slots * ring_stride(size)
}

/// A latest value of a size known at run time.
struct RawLatest {
    mapping: Arc<Mapping>,
    slots: usize,
    size: usize,
}

struct RawSlot {
    place: *mut u8,
    size: usize,
}

impl latest::Memory for RawLatest {
    type Slot = RawSlot;
    fn head(&self) -> &AtomicWord {
        // SAFETY: the head is the first thing of the structure, which the mapping keeps.
        unsafe { &*self.mapping.base().add(BODY).cast() }
    }
    fn slots(&self) -> usize {
        self.slots
    }
    fn slot(&self, slot: usize) -> RawSlot {
        let offset = BODY + 128 + (slot & (self.slots - 1)) * latest_stride(self.size);
        RawSlot {
            place: self.mapping.base().wrapping_add(offset),
            size: self.size,
        }
    }
}

impl SlotMemory for RawSlot {
    fn mark(&self) -> &AtomicWord {
        // SAFETY: the mark is the first thing of a slot, of a memory that the protocol borrows for longer.
        unsafe { &*self.place.cast() }
    }
    fn stamp(&self) -> &Words<u64> {
        // SAFETY: the stamp follows the mark.
        unsafe { &*self.place.add(8).cast() }
    }
    unsafe fn store(&self, source: *const u8) {
        // SAFETY: the value follows the stamp, aligned to 8; the source is the caller's promise.
        unsafe { bytes::store(self.place.add(16), source, self.size) }
    }
    unsafe fn load(&self, target: *mut u8) {
        // SAFETY: as above.
        unsafe { bytes::load(self.place.add(16), target, self.size) }
    }
}

/// Writes a latest value.
pub struct AsofLatestWriter {
    memory: RawLatest,
    generation: Word,
    _claim: Claim,
}

/// Reads a latest value.
pub struct AsofLatestReader {
    memory: RawLatest,
}

unsafe fn raw_latest(
    name: *const c_char,
    value: &AsofType,
    slots: u32,
    opening: Opening,
) -> Result<RawLatest, ShmError> {
    let count = if slots.is_power_of_two() && slots >= 2 {
        slots
    } else {
        0
    };
    // SAFETY: the caller's promise.
    let (name, layout) = unsafe {
        (
            text(name)?,
            layout(value, 1, count, latest_total(value.size, slots as usize))?,
        )
    };
    Ok(RawLatest {
        mapping: Arc::new(obtain(name, opening, &layout, |_| ())?),
        slots: slots as usize,
        size: value.size,
    })
}

/// Opens (or makes) a latest value to write; `slots` is a power of two, 8 where the Rust side says nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latest_writer_open(
    name: *const c_char,
    value: AsofType,
    slots: u32,
) -> *mut AsofLatestWriter {
    // SAFETY: the caller's promise.
    let opened = unsafe { raw_latest(name, &value, slots, Opening::OpenOrCreate) };
    boxed(opened.and_then(|memory| {
        let claim = claim(&memory.mapping, Role::WRITER)?;
        let generation = latest::Memory::head(&memory).load(core::sync::atomic::Ordering::Relaxed);
        Ok(AsofLatestWriter {
            memory,
            generation,
            _claim: claim,
        })
    }))
}

/// Publishes a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latest_write(
    writer: *mut AsofLatestWriter,
    value: *const c_void,
    stamp: u64,
) {
    // SAFETY: the caller's promise; the claim makes this the only writer.
    unsafe {
        let writer = &mut *writer;
        writer.generation = latest::publish(
            &writer.memory,
            writer.generation,
            value.cast(),
            Stamp(stamp),
            &mut Whole,
        );
    }
}

/// Gives the writing end up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latest_writer_close(writer: *mut AsofLatestWriter) {
    // SAFETY: the caller's promise.
    unsafe { close(writer) }
}

/// Opens a latest value to read; it must be there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latest_reader_open(
    name: *const c_char,
    value: AsofType,
    slots: u32,
) -> *mut AsofLatestReader {
    // SAFETY: the caller's promise.
    let opened = unsafe { raw_latest(name, &value, slots, Opening::OpenReadOnly) };
    boxed(opened.map(|memory| AsofLatestReader { memory }))
}

/// Copies the newest value to `value`; false if there is none yet. Never waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latest_read(
    reader: *const AsofLatestReader,
    value: *mut c_void,
    meta: *mut AsofMeta,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let Some((found, _)) = latest::newest(&(*reader).memory, value.cast()) else {
            return false;
        };
        if !meta.is_null() {
            *meta = AsofMeta {
                generation: found.generation,
                stamp: found.stamp.0,
                missed: 0,
            };
        }
    }
    true
}

/// Whether a process that is alive holds the writing end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latest_is_writer_alive(reader: *const AsofLatestReader) -> bool {
    // SAFETY: the caller's promise.
    unsafe { &*reader }.memory.mapping.is_claimed(Role::WRITER)
}

/// Closes a reading end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latest_reader_close(reader: *mut AsofLatestReader) {
    // SAFETY: the caller's promise.
    unsafe { close(reader) }
}

/// A ring that refuses, of a size known at run time.
struct RawRing {
    mapping: Arc<Mapping>,
    slots: usize,
    size: usize,
}

impl RawRing {
    fn at<T>(&self, offset: usize) -> &T {
        // SAFETY: the offsets are those of the structure, which the mapping keeps, and what is there are words.
        unsafe { &*self.mapping.base().add(BODY + offset).cast() }
    }
    fn slot_offset(&self, slot: usize) -> usize {
        RING_SLOTS + slot * ring_stride(self.size)
    }
    /// The stamp of a slot, which the value follows.
    fn frame(&self, slot: usize) -> *mut u8 {
        self.mapping
            .base()
            .wrapping_add(BODY + self.slot_offset(slot) + 8)
    }
}

impl ring::Memory for RawRing {
    const DROPS: bool = false;
    fn capacity(&self) -> usize {
        self.slots
    }
    fn slots(&self) -> usize {
        self.slots
    }
    fn mark(&self, slot: usize) -> &AtomicMark {
        self.at(self.slot_offset(slot))
    }
    fn head(&self) -> &AtomicMark {
        self.at(0)
    }
    fn lost(&self) -> &AtomicMark {
        self.at(128)
    }
    fn refused(&self) -> &AtomicMark {
        self.at(256)
    }
}

/// Fills the slots of a ring.
pub struct AsofRingProducer {
    memory: RawRing,
    state: ring::ProducerState<[u32; 0]>,
    open: Option<usize>,
    _claim: Claim,
}

/// Empties the slots of a ring.
pub struct AsofRingConsumer {
    memory: RawRing,
    state: ring::ConsumerState,
    open: Option<ring::Claim>,
    _claim: Claim,
}

unsafe fn raw_ring(name: *const c_char, value: &AsofType, slots: u32) -> Result<RawRing, ShmError> {
    // SAFETY: the caller's promise.
    let (name, layout) = unsafe {
        (
            text(name)?,
            layout(value, 2, slots, ring_total(value.size, slots as usize))?,
        )
    };
    Ok(RawRing {
        mapping: Arc::new(obtain(name, Opening::OpenOrCreate, &layout, |_| ())?),
        slots: slots as usize,
        size: value.size,
    })
}

/// Opens (or makes) a ring that refuses when it is full, to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_producer_open(
    name: *const c_char,
    value: AsofType,
    slots: u32,
) -> *mut AsofRingProducer {
    // SAFETY: the caller's promise.
    let opened = unsafe { raw_ring(name, &value, slots) };
    boxed(opened.and_then(|memory| {
        let claim = claim(&memory.mapping, Role::WRITER)?;
        let state = ring::ProducerState::attach(&memory, []);
        Ok(AsofRingProducer {
            memory,
            state,
            open: None,
            _claim: claim,
        })
    }))
}

/// The next slot, to fill in place; null if the ring is full. The same slot until it is committed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_try_write(producer: *mut AsofRingProducer) -> *mut c_void {
    // SAFETY: the caller's promise.
    let producer = unsafe { &mut *producer };
    producer.open = producer.state.claim(&producer.memory);
    producer.open.map_or(core::ptr::null_mut(), |slot| {
        producer.memory.frame(slot).wrapping_add(8).cast()
    })
}

/// Gives the slot that was filled to the consumer; does nothing if none was taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_commit(producer: *mut AsofRingProducer, stamp: u64) {
    // SAFETY: the caller's promise.
    let producer = unsafe { &mut *producer };
    if let Some(slot) = producer.open.take() {
        // SAFETY: the slot is free, so it is the producer's; its stamp comes first.
        unsafe { producer.memory.frame(slot).cast::<u64>().write(stamp) };
        producer.state.publish(&producer.memory, &mut Whole);
    }
}

/// Gives the writing end up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_producer_close(producer: *mut AsofRingProducer) {
    // SAFETY: the caller's promise.
    unsafe { close(producer) }
}

/// Opens (or makes) a ring that refuses when it is full, to read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_consumer_open(
    name: *const c_char,
    value: AsofType,
    slots: u32,
) -> *mut AsofRingConsumer {
    // SAFETY: the caller's promise.
    let opened = unsafe { raw_ring(name, &value, slots) };
    boxed(opened.and_then(|memory| {
        let claim = claim(&memory.mapping, Role::READER)?;
        let state = ring::ConsumerState::attach(&memory);
        Ok(AsofRingConsumer {
            memory,
            state,
            open: None,
            _claim: claim,
        })
    }))
}

/// The oldest sample, in place, until it is released; null if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_try_read(
    consumer: *mut AsofRingConsumer,
    meta: *mut AsofMeta,
) -> *const c_void {
    // SAFETY: the caller's promise.
    let consumer = unsafe { &mut *consumer };
    if consumer.open.is_none() {
        consumer.open = consumer.state.claim(&consumer.memory);
    }
    let Some(claim) = consumer.open else {
        return core::ptr::null();
    };
    let frame = consumer.memory.frame(claim.slot);
    if !meta.is_null() {
        // SAFETY: the sample is the consumer's until it is released; its stamp comes first.
        let stamp = unsafe { frame.cast::<u64>().read() };
        let (generation, missed) = (claim.position, claim.missed);
        // SAFETY: the caller's promise.
        unsafe {
            *meta = AsofMeta {
                generation,
                stamp,
                missed,
            }
        };
    }
    frame.wrapping_add(8).cast_const().cast()
}

/// Gives the sample that was read back to the producer; does nothing if none was taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_release(consumer: *mut AsofRingConsumer) {
    // SAFETY: the caller's promise.
    let consumer = unsafe { &mut *consumer };
    if let Some(claim) = consumer.open.take() {
        ring::ConsumerState::release(&consumer.memory, claim);
    }
}

/// Gives the reading end up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_consumer_close(consumer: *mut AsofRingConsumer) {
    // SAFETY: the caller's promise.
    unsafe { close(consumer) }
}

/// Reports events.
pub struct AsofLatchTrigger(Trigger<Claimed<EventLatch>>);
/// Acknowledges events.
pub struct AsofLatchResetter(Resetter<Claimed<EventLatch>>);
/// Looks at events.
pub struct AsofLatchObserver(Observer<Mapped<EventLatch>>);

unsafe fn latch(name: *const c_char, silence: u64) -> Result<Segment<EventLatch>, ShmError> {
    let silence = (silence != 0).then(|| core::time::Duration::from_nanos(silence));
    // SAFETY: the caller's promise.
    Segment::open_or_create(unsafe { text(name) }?, silence)
}

/// Opens (or makes) a latch to report events; after `silence` nanoseconds without a sign of life it is silent, 0 for never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_trigger_open(
    name: *const c_char,
    silence: u64,
) -> *mut AsofLatchTrigger {
    // SAFETY: the caller's promise.
    boxed(
        unsafe { latch(name, silence) }.and_then(|segment| segment.trigger().map(AsofLatchTrigger)),
    )
}

/// Reports an event: which contacts, as bits, and when.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_trigger(
    trigger: *mut AsofLatchTrigger,
    contacts: u32,
    stamp: u64,
) {
    // SAFETY: the caller's promise.
    unsafe { &mut *trigger }.0.trigger(contacts, Stamp(stamp));
}

/// Gives the end that reports up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_trigger_close(trigger: *mut AsofLatchTrigger) {
    // SAFETY: the caller's promise.
    unsafe { close(trigger) }
}

/// Opens a latch to look at events; it must be there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_observer_open(name: *const c_char) -> *mut AsofLatchObserver {
    // SAFETY: the caller's promise.
    let segment = unsafe { text(name) }.and_then(Segment::<EventLatch>::open_read_only);
    boxed(segment.map(|segment| AsofLatchObserver(segment.observer())))
}

/// Whether there are events that were not acknowledged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_is_triggered(observer: *const AsofLatchObserver) -> bool {
    // SAFETY: the caller's promise.
    unsafe { &*observer }.0.is_triggered()
}

/// The count of all events, to be acknowledged once they were dealt with; 0 if none is new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_new_count(observer: *const AsofLatchObserver, now: u64) -> u64 {
    // SAFETY: the caller's promise.
    match unsafe { &*observer }.0.state(Stamp(now)) {
        State::Contact(contact) => contact.count,
        _ => 0,
    }
}

/// Closes an end that looks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_observer_close(observer: *mut AsofLatchObserver) {
    // SAFETY: the caller's promise.
    unsafe { close(observer) }
}

/// Opens a latch to acknowledge events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_resetter_open(
    name: *const c_char,
    silence: u64,
) -> *mut AsofLatchResetter {
    // SAFETY: the caller's promise.
    boxed(
        unsafe { latch(name, silence) }
            .and_then(|segment| segment.resetter().map(AsofLatchResetter)),
    )
}

/// Acknowledges all events up to `count`; false if more came by now, which stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_reset(resetter: *mut AsofLatchResetter, count: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { &mut *resetter }.0.reset(count).is_ok()
}

/// Gives the end that acknowledges up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_resetter_close(resetter: *mut AsofLatchResetter) {
    // SAFETY: the caller's promise.
    unsafe { close(resetter) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::Shared;
    use crate::{Latest, Refuse, Ring};

    #[test]
    fn the_numbers_describe_the_rust_structures() {
        fn check<const SIZE: usize, const N: usize>() {
            assert_eq!(
                latest_total(SIZE * 8, N),
                size_of::<Latest<[u64; SIZE], N>>()
            );
            assert_eq!(
                ring_total(SIZE * 8, N),
                size_of::<Ring<[u64; SIZE], N, Refuse>>()
            );
            assert_eq!(latest_total(SIZE, N), size_of::<Latest<[u8; SIZE], N>>());
            assert_eq!(
                ring_total(SIZE, N),
                Ring::<[u8; SIZE], N, Refuse>::layout().total as usize
            );
        }
        check::<1, 2>();
        check::<18, 8>();
        check::<112, 4>();
        check::<1024, 8>();
    }
}
