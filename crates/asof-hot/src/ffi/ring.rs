//! The ring, with both policies.

use core::ffi::{c_char, c_void};
use core::sync::atomic::Ordering;
use std::boxed::Box;
use std::collections::VecDeque;
use std::vec;

use super::{AsofMeta, AsofType, Body, boxed, close, layout, open_or_create, stride, tell, within};
use crate::claim::Claim as Reading;
use crate::ring::{ConsumerState, Memory, ProducerState, wrapped};
use crate::shm::mapping::Claim;
use crate::shm::{Role, ShmError, claim};
use crate::steps::Whole;
use crate::sync::{AtomicCounter, AtomicMark};

// The layout of `Ring`, for types aligned to at most 8: three counters, then the slots, each a mark, a stamp, a value.
const HEAD: usize = 0;
const LOST: usize = 128;
const REFUSED: usize = 256;
const HIGH_WATER: usize = 264;
const SLOTS: usize = 384;
const STAMP: usize = 8;
const VALUE: usize = 16;

const fn slot_stride(size: usize) -> usize {
    stride(VALUE + size)
}

/// Slots beyond the capacity, in a ring that drops.
const fn spare(drops_oldest: bool) -> usize {
    if drops_oldest { 2 } else { 0 }
}

const fn total(size: usize, capacity: usize, drops_oldest: bool) -> usize {
    SLOTS + (capacity + spare(drops_oldest)) * slot_stride(size)
}

/// A ring of a size known at run time.
struct RawRing<const DROPS: bool> {
    body: Body,
    capacity: usize,
    size: usize,
}

impl<const DROPS: bool> RawRing<DROPS> {
    fn counter(&self, offset: usize) -> &AtomicMark {
        // SAFETY: the offsets are those of the structure's counters and marks.
        unsafe { self.body.at(offset) }
    }
    fn slot(&self, slot: usize) -> usize {
        SLOTS + slot * slot_stride(self.size)
    }
    fn stamp(&self, slot: usize) -> *mut u64 {
        self.body.place(self.slot(slot) + STAMP).cast()
    }
    fn value(&self, slot: usize) -> *mut c_void {
        self.body.place(self.slot(slot) + VALUE).cast()
    }
}

impl<const DROPS: bool> Memory for RawRing<DROPS> {
    const DROPS: bool = DROPS;
    fn capacity(&self) -> usize {
        self.capacity
    }
    fn slots(&self) -> usize {
        self.capacity + spare(DROPS)
    }
    fn mark(&self, slot: usize) -> &AtomicMark {
        self.counter(self.slot(slot))
    }
    fn head(&self) -> &AtomicMark {
        self.counter(HEAD)
    }
    fn lost(&self) -> &AtomicMark {
        self.counter(LOST)
    }
    fn refused(&self) -> &AtomicMark {
        self.counter(REFUSED)
    }
    fn high_water(&self) -> &AtomicCounter {
        // SAFETY: the high water mark is there.
        unsafe { self.body.at(HIGH_WATER) }
    }
}

unsafe fn open<const DROPS: bool>(
    name: *const c_char,
    value: &AsofType,
    capacity: u32,
) -> Result<RawRing<DROPS>, ShmError> {
    let count = within(capacity, 1..=1 << 24, "slots of a ring")?;
    let kind = if DROPS { 3 } else { 2 };
    let total = total(value.size, count, DROPS);
    // SAFETY: upheld by the caller.
    let body = unsafe {
        let layout = layout(value, kind, [capacity, 0, 0], total)?;
        Body::open(name, open_or_create(), &layout, ())?
    };
    Ok(RawRing {
        body,
        capacity: count,
        size: value.size,
    })
}

/// One end, of either policy.
trait ProducerEnd {
    fn claim(&mut self, most: usize) -> usize;
    fn value(&self, index: usize) -> *mut c_void;
    fn commit(&mut self, stamp: u64);
    fn counters(&self) -> RingStats;
    fn is_abandoned(&self) -> bool;
}

struct RingStats {
    lost: u64,
    refused: u64,
    high_water: u64,
}

struct ProducerOf<const DROPS: bool> {
    memory: RawRing<DROPS>,
    state: ProducerState<Box<[u32]>>,
    /// The first claimed slot and the number of slots.
    open: (usize, usize),
    _claim: Claim,
}

impl<const DROPS: bool> ProducerOf<DROPS> {
    fn attach(memory: RawRing<DROPS>) -> Result<Self, ShmError> {
        let claim = claim(&memory.body.mapping, Role::WRITER)?;
        let book = vec![0; if DROPS { memory.capacity } else { 0 }];
        Ok(ProducerOf {
            state: ProducerState::attach(&memory, book.into_boxed_slice()),
            memory,
            open: (0, 0),
            _claim: claim,
        })
    }
}

impl<const DROPS: bool> ProducerEnd for ProducerOf<DROPS> {
    fn claim(&mut self, most: usize) -> usize {
        self.open = match self.state.claim(&self.memory) {
            Some(first) => (first, self.state.free_in_a_row(&self.memory, most)),
            None => (0, 0),
        };
        self.open.1
    }
    fn value(&self, index: usize) -> *mut c_void {
        let (first, count) = self.open;
        if index >= count {
            return core::ptr::null_mut();
        }
        self.memory.value(wrapped(&self.memory, first + index))
    }
    fn commit(&mut self, stamp: u64) {
        let (first, count) = core::mem::take(&mut self.open);
        for index in 0..count {
            let slot = wrapped(&self.memory, first + index);
            // SAFETY: the slot is free and not committed yet, so it belongs to the producer.
            unsafe { self.memory.stamp(slot).write(stamp) };
            self.state.publish(&self.memory, &mut Whole);
        }
    }
    fn counters(&self) -> RingStats {
        RingStats {
            lost: self.memory.lost().load(Ordering::Relaxed),
            refused: self.memory.refused().load(Ordering::Relaxed),
            high_water: self.memory.high_water().load(Ordering::Relaxed),
        }
    }
    fn is_abandoned(&self) -> bool {
        !self.memory.body.mapping.is_reader_alive()
    }
}

trait ConsumerEnd {
    fn claim(&mut self, most: usize) -> AsofRingRead;
    fn claim_newest(&mut self) -> AsofRingRead;
    fn sample(&self, ticket: u64, index: usize) -> Option<(*const c_void, AsofMeta)>;
    fn release(&mut self, ticket: u64) -> bool;
    fn has_new(&self) -> bool;
    fn lost(&self) -> u64;
    fn high_water(&self) -> u64;
    fn is_abandoned(&self) -> bool;
}

/// Consecutive samples that were taken together.
struct Open {
    first: Reading,
    count: usize,
    /// Released by the caller, but not returned to the producer: an older one is still held. A successor of this
    /// process continues with the oldest that is left, so they are returned in order.
    is_released: bool,
}

struct ConsumerOf<const DROPS: bool> {
    memory: RawRing<DROPS>,
    state: ConsumerState,
    /// Everything taken and not returned, oldest first.
    open: VecDeque<Open>,
    _claim: Claim,
}

impl<const DROPS: bool> ConsumerOf<DROPS> {
    fn attach(memory: RawRing<DROPS>) -> Result<Self, ShmError> {
        let claim = claim(&memory.body.mapping, Role::READER)?;
        Ok(ConsumerOf {
            state: ConsumerState::attach(&memory),
            // Each holds at least one slot: there is room for all that can be taken.
            open: VecDeque::with_capacity(memory.slots()),
            memory,
            _claim: claim,
        })
    }

    fn take(&mut self, first: Reading, count: usize, skipped: usize) -> AsofRingRead {
        self.open.push_back(Open {
            first,
            count,
            is_released: false,
        });
        AsofRingRead {
            ticket: first.position,
            count,
            skipped,
        }
    }

    fn nth(&self, open: &Open, index: usize) -> Reading {
        Reading {
            slot: wrapped(&self.memory, open.first.slot + index),
            position: open.first.position.wrapping_add(index as u64),
            missed: if index == 0 { open.first.missed } else { 0 },
        }
    }
}

impl<const DROPS: bool> ConsumerEnd for ConsumerOf<DROPS> {
    fn claim(&mut self, most: usize) -> AsofRingRead {
        let most = most.min(self.memory.capacity);
        if most == 0 {
            return AsofRingRead::default();
        }
        let Some(first) = self.state.claim(&self.memory) else {
            return AsofRingRead::default();
        };
        let skipped = self.state.take_gone_past();
        let mut count = 1;
        while count < most && self.state.claim_next_in_row(&self.memory).is_some() {
            count += 1;
        }
        self.take(first, count, skipped)
    }
    fn claim_newest(&mut self) -> AsofRingRead {
        if self.open.is_empty() {
            return match self.state.claim_newest(&self.memory) {
                Some((newest, skipped)) => self.take(newest, 1, skipped),
                None => AsofRingRead::default(),
            };
        }
        // Skipped samples are returned after the held ones.
        let mut skipped = self.state.take_gone_past();
        while let Some(newest) = self.state.claim(&self.memory) {
            if !self.state.has_next(&self.memory) {
                return self.take(newest, 1, skipped);
            }
            self.take(newest, 1, 0);
            if let Some(passed) = self.open.back_mut() {
                passed.is_released = true;
            }
            skipped += 1;
        }
        AsofRingRead::default()
    }
    fn sample(&self, ticket: u64, index: usize) -> Option<(*const c_void, AsofMeta)> {
        // Usually there is one.
        let is_it = |open: &&Open| open.first.position == ticket && !open.is_released;
        let open = self.open.iter().rev().find(is_it)?;
        if index >= open.count {
            return None;
        }
        let sample = self.nth(open, index);
        // SAFETY: the sample belongs to the consumer until it is released.
        let stamp = unsafe { self.memory.stamp(sample.slot).read() };
        let meta = AsofMeta {
            generation: sample.position,
            stamp,
            missed: sample.missed,
        };
        Some((self.memory.value(sample.slot), meta))
    }
    fn release(&mut self, ticket: u64) -> bool {
        let is_it = |open: &&mut Open| open.first.position == ticket && !open.is_released;
        let Some(open) = self.open.iter_mut().find(is_it) else {
            return false;
        };
        open.is_released = true;
        while let Some(oldest) = self.open.pop_front_if(|oldest| oldest.is_released) {
            for index in 0..oldest.count {
                ConsumerState::release(&self.memory, self.nth(&oldest, index));
            }
        }
        true
    }
    fn has_new(&self) -> bool {
        self.state.has_next(&self.memory)
    }
    fn lost(&self) -> u64 {
        self.memory.lost().load(Ordering::Relaxed)
    }
    fn high_water(&self) -> u64 {
        self.memory.high_water().load(Ordering::Relaxed)
    }
    fn is_abandoned(&self) -> bool {
        !self.memory.body.mapping.is_writer_alive()
    }
}

/// Samples that were taken together, in place, until they are released by their ticket. Several may be held at once;
/// they are returned to the producer in the order in which they were taken.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AsofRingRead {
    /// Identifies them for `asof_ring_sample` and `asof_ring_release`.
    pub ticket: u64,
    /// The number of samples; 0 if there was none.
    pub count: usize,
    /// The number of older samples that were skipped for the newest.
    pub skipped: usize,
}

/// Opens a ring of either policy and one of its ends.
macro_rules! open_end {
    ($end:ident as $kind:ident, $name:expr, $value:expr, $slots:expr, $drops_oldest:expr) => {
        if $drops_oldest {
            open::<true>($name, $value, $slots)
                .and_then($end::attach)
                .map(|end| Box::new(end) as Box<dyn $kind>)
        } else {
            open::<false>($name, $value, $slots)
                .and_then($end::attach)
                .map(|end| Box::new(end) as Box<dyn $kind>)
        }
    };
}

/// The writing end of a ring.
pub struct AsofRingProducer(Box<dyn ProducerEnd>);

/// The reading end of a ring.
pub struct AsofRingConsumer(Box<dyn ConsumerEnd>);

/// Opens or creates a ring of `slots` slots for writing; when it is full it refuses, or drops its oldest sample.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_producer_open(
    name: *const c_char,
    value: AsofType,
    slots: u32,
    drops_oldest: bool,
) -> *mut AsofRingProducer {
    // SAFETY: upheld by the caller.
    let opened = unsafe { open_end!(ProducerOf as ProducerEnd, name, &value, slots, drops_oldest) };
    boxed(opened.map(AsofRingProducer))
}

/// The next slot, to fill in place; null if the ring is full. Returns the same slot until it is committed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_try_write(producer: *mut AsofRingProducer) -> *mut c_void {
    // SAFETY: upheld by the caller.
    let producer = unsafe { &mut *producer };
    producer.0.claim(1);
    producer.0.value(0)
}

/// Takes up to `most` consecutive slots, to fill in place and commit together. Returns how many; 0 if the ring is full.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_try_write_batch(
    producer: *mut AsofRingProducer,
    most: usize,
) -> usize {
    // SAFETY: upheld by the caller.
    unsafe { &mut *producer }.0.claim(most)
}

/// One of the taken slots, counted from 0; null beyond them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_slot(
    producer: *const AsofRingProducer,
    index: usize,
) -> *mut c_void {
    // SAFETY: upheld by the caller.
    unsafe { &*producer }.0.value(index)
}

/// Gives the taken slots to the consumer; does nothing if there are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_commit(producer: *mut AsofRingProducer, stamp: u64) {
    // SAFETY: upheld by the caller.
    unsafe { &mut *producer }.0.commit(stamp);
}

/// The number of samples dropped unread over the ring's lifetime.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_lost(producer: *const AsofRingProducer) -> u64 {
    // SAFETY: upheld by the caller.
    unsafe { &*producer }.0.counters().lost
}

/// How often there was no slot to write to over the ring's lifetime.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_refused(producer: *const AsofRingProducer) -> u64 {
    // SAFETY: upheld by the caller.
    unsafe { &*producer }.0.counters().refused
}

/// The most samples that waited at once over the ring's lifetime.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_high_water(producer: *const AsofRingProducer) -> u64 {
    // SAFETY: upheld by the caller.
    unsafe { &*producer }.0.counters().high_water
}

/// Whether no live process holds the reading end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_producer_is_abandoned(
    producer: *const AsofRingProducer,
) -> bool {
    // SAFETY: upheld by the caller.
    unsafe { &*producer }.0.is_abandoned()
}

/// Closes the writing end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_producer_close(producer: *mut AsofRingProducer) {
    // SAFETY: upheld by the caller.
    unsafe { close(producer) }
}

/// Opens or creates a ring for reading, with the same arguments as for the producer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_consumer_open(
    name: *const c_char,
    value: AsofType,
    slots: u32,
    drops_oldest: bool,
) -> *mut AsofRingConsumer {
    // SAFETY: upheld by the caller.
    let opened = unsafe { open_end!(ConsumerOf as ConsumerEnd, name, &value, slots, drops_oldest) };
    boxed(opened.map(AsofRingConsumer))
}

/// Takes the oldest sample, in place, until it is released; false if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_try_read(
    consumer: *mut AsofRingConsumer,
    read: *mut AsofRingRead,
) -> bool {
    // SAFETY: upheld by the caller.
    unsafe { took((*consumer).0.claim(1), read) }
}

/// Takes the newest sample, in place, until it is released; older ones are returned unread. False if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_try_latest(
    consumer: *mut AsofRingConsumer,
    read: *mut AsofRingRead,
) -> bool {
    // SAFETY: upheld by the caller.
    unsafe { took((*consumer).0.claim_newest(), read) }
}

/// Takes up to `most` consecutive samples, in place, until they are released together; false if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_try_read_batch(
    consumer: *mut AsofRingConsumer,
    most: usize,
    read: *mut AsofRingRead,
) -> bool {
    // SAFETY: upheld by the caller.
    unsafe { took((*consumer).0.claim(most), read) }
}

/// # Safety
/// Null, or valid for writing.
unsafe fn took(found: AsofRingRead, read: *mut AsofRingRead) -> bool {
    // SAFETY: upheld by the caller.
    unsafe { tell(read, found) };
    found.count > 0
}

/// One of the samples taken with a ticket, counted from 0; null beyond them, and after their release.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_sample(
    consumer: *const AsofRingConsumer,
    ticket: u64,
    index: usize,
    meta: *mut AsofMeta,
) -> *const c_void {
    // SAFETY: upheld by the caller.
    let sample = unsafe { &*consumer }.0.sample(ticket, index);
    sample.map_or(core::ptr::null(), |(value, found)| {
        // SAFETY: upheld by the caller.
        unsafe { tell(meta, found) };
        value
    })
}

/// Returns the samples taken with a ticket to the producer, once everything taken before is returned; false if they
/// were already released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_release(consumer: *mut AsofRingConsumer, ticket: u64) -> bool {
    // SAFETY: upheld by the caller.
    unsafe { &mut *consumer }.0.release(ticket)
}

/// Whether there is a sample that was not taken yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_has_new(consumer: *const AsofRingConsumer) -> bool {
    // SAFETY: upheld by the caller.
    unsafe { &*consumer }.0.has_new()
}

/// The number of samples dropped unread, as seen by the consumer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_missed(consumer: *const AsofRingConsumer) -> u64 {
    // SAFETY: upheld by the caller.
    unsafe { &*consumer }.0.lost()
}

/// The most samples that waited at once, as seen by the consumer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_most_waiting(consumer: *const AsofRingConsumer) -> u64 {
    // SAFETY: upheld by the caller.
    unsafe { &*consumer }.0.high_water()
}

/// Whether no live process holds the writing end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_consumer_is_abandoned(
    consumer: *const AsofRingConsumer,
) -> bool {
    // SAFETY: upheld by the caller.
    unsafe { &*consumer }.0.is_abandoned()
}

/// Closes the reading end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_ring_consumer_close(consumer: *mut AsofRingConsumer) {
    // SAFETY: upheld by the caller.
    unsafe { close(consumer) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::Shared;
    use crate::{DropOldest, Refuse, Ring};

    #[test]
    fn the_numbers_describe_the_rust_structure() {
        fn check<const SIZE: usize, const N: usize>() {
            let of = |drops| total(SIZE, N, drops) as u64;
            assert_eq!(of(false), Ring::<[u8; SIZE], N, Refuse>::layout().total);
            assert_eq!(of(true), Ring::<[u8; SIZE], N, DropOldest>::layout().total);
            let numbers = [
                HEAD,
                LOST,
                REFUSED,
                HIGH_WATER,
                SLOTS,
                slot_stride(SIZE),
                STAMP,
                VALUE,
            ];
            assert_eq!(numbers, Ring::<[u8; SIZE], N, Refuse>::offsets());
            assert_eq!(numbers, Ring::<[u8; SIZE], N, DropOldest>::offsets());
        }
        check::<1, 2>();
        check::<144, 8>();
        check::<112, 3>();
        check::<8192, 8>();
    }
}
