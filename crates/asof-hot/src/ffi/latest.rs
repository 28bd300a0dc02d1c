//! The latest value, small.

use core::ffi::{c_char, c_void};
use core::sync::atomic::Ordering;

use super::{AsofMeta, AsofType, Body, boxed, close, layout, open_or_create, stride, tell};
use crate::latest::{Memory, Pace, SlotMemory, newest, publish};
use crate::shm::mapping::Claim;
use crate::shm::{Opening, Role, ShmError, claim};
use crate::stamp::{Meta, MonoStamp};
use crate::steps::Whole;
use crate::sync::{AtomicWord, Word};
use crate::words::{Words, bytes, fetch_for_reading};

// The layout of `Latest`, for types aligned to at most 8: the head, then the slots, each a mark, a stamp, a value.
const SLOTS: usize = 128;
const STAMP: usize = 8;
const VALUE: usize = 16;

const fn slot_stride(size: usize) -> usize {
    stride(VALUE + size)
}

/// The total size of a latest value.
pub(super) const fn total(size: usize, slots: usize) -> usize {
    SLOTS + slots * slot_stride(size)
}

/// A latest value of a size known at run time, somewhere in a segment.
pub(super) struct RawLatest {
    pub(super) body: Body,
    /// Its offset in the segment.
    pub(super) offset: usize,
    pub(super) slots: usize,
    pub(super) size: usize,
}

pub(super) struct RawSlot {
    place: *mut u8,
    size: usize,
}

impl Memory for RawLatest {
    type Slot = RawSlot;
    fn head(&self) -> &AtomicWord {
        // SAFETY: the head is the first field of the structure.
        unsafe { self.body.at(self.offset) }
    }
    fn slots(&self) -> usize {
        self.slots
    }
    fn slot(&self, slot: usize) -> RawSlot {
        let place = (slot & (self.slots - 1)) * slot_stride(self.size);
        RawSlot {
            place: self.body.place(self.offset + SLOTS + place),
            size: self.size,
        }
    }
    unsafe fn load(&self, value: *const u8, target: *mut u8) {
        // SAFETY: a value is aligned to 8; the target is valid by the caller's promise.
        unsafe { bytes::load(value.cast_mut(), target, self.size) }
    }
}

impl SlotMemory for RawSlot {
    fn mark(&self) -> &AtomicWord {
        // SAFETY: the mark is the first field of a slot, in memory that the protocol borrows for longer.
        unsafe { &*self.place.cast() }
    }
    fn stamp(&self) -> &Words<u64> {
        // SAFETY: the stamp follows the mark.
        unsafe { &*self.place.add(STAMP).cast() }
    }
    unsafe fn store(&self, source: *const u8) {
        // SAFETY: the value follows the stamp, aligned to 8; the source is valid by the caller's promise.
        unsafe { bytes::store(self.place.add(VALUE), source, self.size) }
    }
    fn value(&self) -> *const u8 {
        self.place.wrapping_add(VALUE)
    }
    unsafe fn load(&self, target: *mut u8) {
        // SAFETY: as above.
        unsafe { bytes::load(self.place.add(VALUE), target, self.size) }
    }
    fn fetch(&self) {
        fetch_for_reading(self.place, VALUE + self.size);
    }
}

/// The writing end of a latest value.
pub struct AsofLatestWriter {
    memory: RawLatest,
    generation: Word,
    _claim: Claim,
}

/// A reading end of a latest value.
pub struct AsofLatestReader {
    memory: RawLatest,
    pace: Pace,
}

unsafe fn open(
    name: *const c_char,
    value: &AsofType,
    slots: u32,
    opening: Opening,
) -> Result<RawLatest, ShmError> {
    if !slots.is_power_of_two() || slots < 2 {
        return Err(ShmError::Invalid(std::format!(
            "{slots} slots: a latest value needs a power of two, at least 2"
        )));
    }
    let (size, count) = (value.size, slots as usize);
    // SAFETY: upheld by the caller.
    let body = unsafe {
        let layout = layout(value, 1, [slots, 0, 0], total(size, count))?;
        Body::open(name, opening, &layout, ())?
    };
    Ok(RawLatest {
        body,
        offset: 0,
        slots: count,
        size,
    })
}

/// Opens or creates a latest value for writing; `slots` is a power of two, 8 by default on the Rust side.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latest_writer_open(
    name: *const c_char,
    value: AsofType,
    slots: u32,
) -> *mut AsofLatestWriter {
    // SAFETY: upheld by the caller.
    let opened = unsafe { open(name, &value, slots, open_or_create()) };
    boxed(opened.and_then(|memory| {
        let claim = claim(&memory.body.mapping, Role::WRITER)?;
        let generation = memory.head().load(Ordering::Relaxed);
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
    // SAFETY: upheld by the caller; the claim makes this the only writer.
    unsafe {
        let writer = &mut *writer;
        writer.generation = publish(
            &writer.memory,
            writer.generation,
            value.cast(),
            MonoStamp(stamp),
            &mut Whole,
        );
    }
}

/// Copies the last written value to `value`, to be changed and written; false (and zeros) before the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latest_last(
    writer: *const AsofLatestWriter,
    value: *mut c_void,
) -> bool {
    // SAFETY: upheld by the caller.
    unsafe {
        let memory = &(*writer).memory;
        value.cast::<u8>().write_bytes(0, memory.size);
        newest(memory, value.cast()).is_some()
    }
}

/// Closes the writing end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latest_writer_close(writer: *mut AsofLatestWriter) {
    // SAFETY: upheld by the caller.
    unsafe { close(writer) }
}

/// Opens an existing latest value for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latest_reader_open(
    name: *const c_char,
    value: AsofType,
    slots: u32,
) -> *mut AsofLatestReader {
    // SAFETY: upheld by the caller.
    let opened = unsafe { open(name, &value, slots, Opening::OpenReadOnly) };
    boxed(opened.map(|memory| AsofLatestReader {
        memory,
        pace: Pace::new(),
    }))
}

/// Copies the newest value to `value`; false if there is none yet. Never waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latest_read(
    reader: *const AsofLatestReader,
    value: *mut c_void,
    meta: *mut AsofMeta,
) -> bool {
    // SAFETY: upheld by the caller.
    unsafe { read(&*reader, value, meta) }
}

/// Copies the newest value to `value` if its generation is not `seen`; false if it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latest_read_if_newer(
    reader: *const AsofLatestReader,
    seen: u64,
    value: *mut c_void,
    meta: *mut AsofMeta,
) -> bool {
    // SAFETY: upheld by the caller.
    unsafe { asof_latest_generation(reader) != seen && read(&*reader, value, meta) }
}

/// The generation of the newest value; 0 before the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latest_generation(reader: *const AsofLatestReader) -> u64 {
    // SAFETY: upheld by the caller.
    let memory = unsafe { &(*reader).memory };
    memory.head().load(crate::order::latest_head_load())
}

unsafe fn read(reader: &AsofLatestReader, value: *mut c_void, meta: *mut AsofMeta) -> bool {
    // SAFETY: upheld by the caller.
    unsafe {
        let found: Option<(Meta, u32)> = reader.pace.read(&reader.memory, value.cast());
        let is_there = found.is_some();
        if let Some((found, _)) = found {
            tell(meta, found);
        }
        is_there
    }
}

/// Whether a live process holds the writing end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latest_is_writer_alive(reader: *const AsofLatestReader) -> bool {
    // SAFETY: upheld by the caller.
    unsafe { &*reader }
        .memory
        .body
        .mapping
        .is_claimed(Role::WRITER)
}

/// Closes a reading end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latest_reader_close(reader: *mut AsofLatestReader) {
    // SAFETY: upheld by the caller.
    unsafe { close(reader) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Latest;

    #[test]
    fn the_numbers_describe_the_rust_structure() {
        fn check<const SIZE: usize, const N: usize>() {
            assert_eq!(total(SIZE, N), size_of::<Latest<[u8; SIZE], N>>());
            assert_eq!(total(SIZE * 8, N), size_of::<Latest<[u64; SIZE], N>>());
            let numbers = [SLOTS, slot_stride(SIZE), STAMP, VALUE];
            assert_eq!(numbers, Latest::<[u8; SIZE], N>::offsets());
        }
        check::<1, 2>();
        check::<18, 8>();
        check::<112, 4>();
        check::<1024, 8>();
    }
}
