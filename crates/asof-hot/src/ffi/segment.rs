//! What every segment has, whatever it holds: who is alive, and sleeping instead of spinning.

use core::ffi::{c_char, c_void};
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Arc;

use super::{boxed, close, text};
use crate::shm::mapping::Mapping;
use crate::shm::{Role, SegmentSignal, ShmError, open_whatever_it_holds};
use crate::wait::{Notifier, Sleeper};

/// A segment, whatever it holds.
pub struct AsofSegment {
    mapping: Arc<Mapping>,
    notifier: Notifier<SegmentSignal>,
    sleeper: Sleeper<SegmentSignal>,
}

/// Opens a segment that is there, whatever it holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_open(name: *const c_char) -> *mut AsofSegment {
    // SAFETY: the caller's promise.
    let mapping = unsafe { text(name) }.and_then(open_whatever_it_holds);
    boxed(mapping.map(|mapping| -> AsofSegment {
        let mapping = Arc::new(mapping);
        let signal = SegmentSignal::of(&mapping);
        AsofSegment {
            notifier: Notifier::attach(signal.clone()),
            sleeper: Sleeper::attach(signal),
            mapping,
        }
    }) as Result<AsofSegment, ShmError>)
}

/// Closes a segment; ends of it stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_close(segment: *mut AsofSegment) {
    // SAFETY: the caller's promise.
    unsafe { close(segment) }
}

/// Whether the writing end (or producer, or trigger) is held by a process that is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_is_writer_alive(segment: *const AsofSegment) -> bool {
    // SAFETY: the caller's promise.
    unsafe { &*segment }.mapping.is_claimed(Role::WRITER)
}

/// Whether the only reading end (consumer, resetter) is held by a process that is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_is_reader_alive(segment: *const AsofSegment) -> bool {
    // SAFETY: the caller's promise.
    unsafe { &*segment }.mapping.is_claimed(Role::READER)
}

/// How many writers there were so far: a change means that one took over from another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_epoch(segment: *const AsofSegment) -> u64 {
    // SAFETY: the caller's promise.
    let header = unsafe { &*segment }.mapping.header();
    header.epoch.load(Ordering::Acquire)
}

/// Says, for the writer, that it is alive though it has nothing to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_beat(segment: *mut AsofSegment, now: u64) {
    // SAFETY: the caller's promise.
    let header = unsafe { &*segment }.mapping.header();
    header.heartbeat.store(now, Ordering::Relaxed);
}

/// When the writer last said so; 0 if never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_last_beat(segment: *const AsofSegment) -> u64 {
    // SAFETY: the caller's promise.
    let header = unsafe { &*segment }.mapping.header();
    header.heartbeat.load(Ordering::Relaxed)
}

/// Wakes all who sleep on this segment, in whatever process; call it after each publication.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_notify(segment: *const AsofSegment) {
    // SAFETY: the caller's promise.
    unsafe { &*segment }.notifier.notify();
}

/// Sleeps until `is_ready(context)` holds, or `timeout` nanoseconds are over (0: never); looks once more whenever it is
/// woken. Whether it holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_wait(
    segment: *const AsofSegment,
    timeout: u64,
    is_ready: extern "C" fn(*mut c_void) -> bool,
    context: *mut c_void,
) -> bool {
    let timeout = (timeout != 0).then(|| Duration::from_nanos(timeout));
    // SAFETY: the caller's promise.
    let segment = unsafe { &*segment };
    segment.sleeper.wait_until(timeout, || is_ready(context))
}
