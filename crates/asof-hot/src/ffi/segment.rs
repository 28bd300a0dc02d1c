//! What every segment has, whatever it holds: who is alive, and sleeping instead of spinning.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::{boxed, close, kept, text};
use crate::event_fd::Relay;
use crate::shm::mapping::Mapping;
use crate::shm::{SegmentSignal, ShmError, open_whatever_it_holds};
use crate::wait::{Notifier, Sleeper};

/// A segment, whatever it holds.
pub struct AsofSegment {
    mapping: Arc<Mapping>,
    notifier: Notifier<SegmentSignal>,
    sleeper: Sleeper<SegmentSignal>,
    relay: Option<Relay<SegmentSignal>>,
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
            relay: None,
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

/// Whether the writing end (or producer, or trigger, or any source of a mux) is held by a process that is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_is_writer_alive(segment: *const AsofSegment) -> bool {
    // SAFETY: the caller's promise.
    unsafe { &*segment }.mapping.is_writer_alive()
}

/// Whether a claimed reading end (consumer, resetter, reader of a snapshot) is held by a process that is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_is_reader_alive(segment: *const AsofSegment) -> bool {
    // SAFETY: the caller's promise.
    unsafe { &*segment }.mapping.is_reader_alive()
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

/// A file that is readable after this segment was notified, for `epoll`, `poll` and the like; -1 if there can be none. Clear it
/// first, then look at the data. The segment has it, and a thread that rings it, until it is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_event_fd(segment: *mut AsofSegment) -> c_int {
    // SAFETY: the caller's promise.
    let segment = unsafe { &mut *segment };
    if segment.relay.is_none() {
        let relay = segment.sleeper.relay().map_err(|source| ShmError::System {
            action: "waiting by a file",
            source,
        });
        segment.relay = kept(relay);
    }
    segment.relay.as_ref().map_or(-1, AsRawFd::as_raw_fd)
}

/// Makes the file unreadable until the segment is notified again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_clear_event_fd(segment: *const AsofSegment) {
    // SAFETY: the caller's promise.
    if let Some(relay) = &unsafe { &*segment }.relay {
        let _ = relay.event_fd().clear();
    }
}
