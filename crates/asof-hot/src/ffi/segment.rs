//! Segments of any kind: liveness, and sleeping instead of spinning.

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

/// A segment of any kind.
pub struct AsofSegment {
    mapping: Arc<Mapping>,
    notifier: Notifier<SegmentSignal>,
    sleeper: Sleeper<SegmentSignal>,
    relay: Option<Relay<SegmentSignal>>,
}

/// Opens an existing segment of any kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_open(name: *const c_char) -> *mut AsofSegment {
    // SAFETY: upheld by the caller.
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

/// Closes a segment; its ends stay open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_close(segment: *mut AsofSegment) {
    // SAFETY: upheld by the caller.
    unsafe { close(segment) }
}

/// Whether the writing end (or producer, or trigger, or any source of a mux) is held by a live process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_is_writer_alive(segment: *const AsofSegment) -> bool {
    // SAFETY: upheld by the caller.
    unsafe { &*segment }.mapping.is_writer_alive()
}

/// Whether a claimed reading end (consumer, resetter, reader of a snapshot) is held by a live process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_is_reader_alive(segment: *const AsofSegment) -> bool {
    // SAFETY: upheld by the caller.
    unsafe { &*segment }.mapping.is_reader_alive()
}

/// The number of writers so far: a change means that one took over from another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_epoch(segment: *const AsofSegment) -> u64 {
    // SAFETY: upheld by the caller.
    let header = unsafe { &*segment }.mapping.header();
    header.epoch.load(Ordering::Acquire)
}

/// A sign of life of a writer that has nothing to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_beat(segment: *mut AsofSegment, now: u64) {
    // SAFETY: upheld by the caller.
    let header = unsafe { &*segment }.mapping.header();
    header.heartbeat.store(now, Ordering::Relaxed);
}

/// The time of the writer's last sign of life; 0 if never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_last_beat(segment: *const AsofSegment) -> u64 {
    // SAFETY: upheld by the caller.
    let header = unsafe { &*segment }.mapping.header();
    header.heartbeat.load(Ordering::Relaxed)
}

/// Wakes all sleepers of this segment in all processes; call it after each publication.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_notify(segment: *const AsofSegment) {
    // SAFETY: upheld by the caller.
    unsafe { &*segment }.notifier.notify();
}

/// Sleeps until `is_ready(context)` holds or `timeout` nanoseconds have passed (0: no timeout); checks again after
/// every wake-up. Returns whether it holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_wait(
    segment: *const AsofSegment,
    timeout: u64,
    is_ready: extern "C" fn(*mut c_void) -> bool,
    context: *mut c_void,
) -> bool {
    let timeout = (timeout != 0).then(|| Duration::from_nanos(timeout));
    // SAFETY: upheld by the caller.
    let segment = unsafe { &*segment };
    segment.sleeper.wait_until(timeout, || is_ready(context))
}

/// A file descriptor that is readable after this segment was notified, for `epoll`, `poll` and the like; -1 on failure.
/// Clear it first, then check the data. The segment owns it, and a thread that rings it, until it is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_event_fd(segment: *mut AsofSegment) -> c_int {
    // SAFETY: upheld by the caller.
    let segment = unsafe { &mut *segment };
    if segment.relay.is_none() {
        let relay = segment.sleeper.relay().map_err(|source| ShmError::System {
            action: "creating an eventfd",
            source,
        });
        segment.relay = kept(relay);
    }
    segment.relay.as_ref().map_or(-1, AsRawFd::as_raw_fd)
}

/// Makes the file descriptor unreadable until the segment is notified again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_segment_clear_event_fd(segment: *const AsofSegment) {
    // SAFETY: upheld by the caller.
    if let Some(relay) = &unsafe { &*segment }.relay {
        let _ = relay.event_fd().clear();
    }
}
